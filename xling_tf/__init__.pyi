from xling_tf.errors import UserError as UserError
from xling_tf.hub.keras_layer import KerasEncoder as KerasEncoder
from xling_tf.search.mining import MiningConfig as MiningConfig
from xling_tf.search.mining import mine_hard_negatives as mine_hard_negatives
from xling_tf.search.quantization import Int8Ranges as Int8Ranges
from xling_tf.search.quantization import dequantize as dequantize
from xling_tf.search.quantization import quantize as quantize
from xling_tf.search.semantic import bitext_mining as bitext_mining
from xling_tf.search.semantic import community_detection as community_detection
from xling_tf.search.semantic import paraphrase_mining as paraphrase_mining
from xling_tf.search.semantic import paraphrase_mining_embeddings as paraphrase_mining_embeddings
from xling_tf.search.semantic import quantized_search as quantized_search
from xling_tf.search.semantic import semantic_search as semantic_search
from xling_tf.sentence_encoder import SentenceEncoder as SentenceEncoder
from xling_tf.sentence_encoder import load as load
from xling_tf.trainer.fine_tuning import fine_tune as fine_tune

__version__: str
