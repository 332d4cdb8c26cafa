from xling_tf.client.search import bitext_mining as bitext_mining
from xling_tf.client.search import paraphrase_mining as paraphrase_mining
from xling_tf.client.search import semantic_search as semantic_search
from xling_tf.errors import UserError as UserError
from xling_tf.exporters.base import calibrate as calibrate
from xling_tf.model import Model as Model
from xling_tf.savedmodel.keras_layer import KerasEncoder as KerasEncoder
from xling_tf.search.hard_negatives import mine_hard_negatives as mine_hard_negatives
from xling_tf.sentence_encoder import SentenceEncoder as SentenceEncoder
from xling_tf.sentence_encoder import load as load
from xling_tf.trainer.fine_tuning import fine_tune as fine_tune

__version__: str
