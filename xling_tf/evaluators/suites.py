"""The suites there are: a table of the papers each, and pictures of the vectors."""

from collections.abc import Mapping

from xling_tf.evaluators import (
    bitext_mining,
    eigen_similarity,
    reqa,
    retrieval,
    semantic_retrieval,
    sts,
)
from xling_tf.evaluators.classification import (
    argument_files,
    document_files,
    inference,
    sentiment_files,
    transfer_files,
)
from xling_tf.evaluators.data import Suite
from xling_tf.evaluators.pictures import illustrations

SUITES: Mapping[str, Suite] = {
    suite.name: suite
    for suite in (
        sts.SUITE,
        transfer_files.SUITE,
        *retrieval.SUITES,
        bitext_mining.SUITE,
        inference.SUITE,
        sentiment_files.SUITE,
        semantic_retrieval.SUITE,
        reqa.SUITE,
        document_files.SUITE,
        argument_files.SUITE,
        eigen_similarity.SUITE,
        *illustrations.SUITES,
    )
}
