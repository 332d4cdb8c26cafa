from xling_tf.bulk.vector_files import encode_files as encode_files
from xling_tf.client.search import bitext_mining as bitext_mining
from xling_tf.client.search import paraphrase_mining as paraphrase_mining
from xling_tf.client.search import semantic_search as semantic_search
from xling_tf.errors import UserError as UserError
from xling_tf.evaluators.running import evaluate as evaluate
from xling_tf.exporters.base import calibrate as calibrate
from xling_tf.exporters.base import export as export
from xling_tf.model import Model as Model
from xling_tf.model import import_model as import_model
from xling_tf.savedmodel.keras_layer import KerasEncoder as KerasEncoder
from xling_tf.search.alignment import align as align
from xling_tf.search.hard_negatives import mine_hard_negatives as mine_hard_negatives
from xling_tf.sentence_encoder import SentenceEncoder as SentenceEncoder
from xling_tf.sentence_encoder import load as load
from xling_tf.trainer.fine_tuning import fine_tune as fine_tune
from xling_tf.trainer.training import train as train
from xling_tf.trainer.word_distillation import distill as distill

__version__: str
