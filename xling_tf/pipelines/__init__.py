"""Raw text at scale to corpora that training reads: Apache Beam pipelines (optional extra)."""

from importlib.util import find_spec

from xling_tf.errors import UserError

if not find_spec("apache_beam"):
    raise UserError(
        "preparing raw corpora needs Apache Beam, which is not installed; "
        "install the extra with: pip install 'xling_tf[beam]' (in a checkout: pip install -e '.[beam]')"
    )
