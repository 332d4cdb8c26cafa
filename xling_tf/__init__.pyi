from xling_tf.errors import UserError as UserError
from xling_tf.search.quantization import Int8Ranges as Int8Ranges
from xling_tf.search.quantization import dequantize as dequantize
from xling_tf.search.quantization import quantize as quantize
from xling_tf.search.search import bitext_mining as bitext_mining
from xling_tf.search.search import paraphrase_mining as paraphrase_mining
from xling_tf.search.search import paraphrase_mining_embeddings as paraphrase_mining_embeddings
from xling_tf.search.search import quantized_search as quantized_search
from xling_tf.search.search import semantic_search as semantic_search
from xling_tf.sentence_encoder import SentenceEncoder as SentenceEncoder
from xling_tf.sentence_encoder import load as load

__version__: str
