"""The suites there are: a table of the papers each."""

from collections.abc import Mapping

<<<<<<< HEAD
from xling_tf.evaluators import (
    bitext_mining,
=======
from xling_tf.evaluators import cross_lingual, documents, inference, transfer
from xling_tf.evaluators.bitext import (
    corpus_retrieval,
>>>>>>> 8336b3f (Classification: five modules that take lists; folds by scikit-learn; published formats to data/convert.py; the zero-shot classifier keeps a tenth for development)
    eigen_similarity,
    reqa,
    retrieval,
    semantic_retrieval,
    sts,
)
from xling_tf.evaluators.data import Suite
<<<<<<< HEAD
from xling_tf.evaluators.pictures import illustrations
=======
from xling_tf.evaluators.ranking import reqa, semantic_retrieval
from xling_tf.evaluators.similarity import sts_suite
>>>>>>> 8336b3f (Classification: five modules that take lists; folds by scikit-learn; published formats to data/convert.py; the zero-shot classifier keeps a tenth for development)

SUITES: Mapping[str, Suite] = {
    suite.name: suite
    for suite in (
<<<<<<< HEAD
        sts.SUITE,
        transfer_files.SUITE,
        *retrieval.SUITES,
        bitext_mining.SUITE,
=======
        sts_suite.SUITE,
        transfer.SUITE,
        retrieval.SUITE,
        corpus_retrieval.SUITE,
        similarity_search.SUITE,
        mining.SUITE,
>>>>>>> 8336b3f (Classification: five modules that take lists; folds by scikit-learn; published formats to data/convert.py; the zero-shot classifier keeps a tenth for development)
        inference.SUITE,
        cross_lingual.CLASSIFICATION,
        semantic_retrieval.SUITE,
        reqa.SUITE,
        documents.SUITE,
        cross_lingual.ARGUMENT,
        eigen_similarity.SUITE,
    )
}
