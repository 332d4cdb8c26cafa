"""Fine-tunes a model on pairs of questions and answers in a CSV file.

python examples/fine_tune.py exported/use-multilingual faq.csv exported/faq

faq.csv begins with the line "question,answer"; a few hundred rows are enough.
"""

import sys

import xling_tf
from xling_tf.program import one_line_errors

start, pairs, output = sys.argv[1:4]
steps = int(sys.argv[4]) if len(sys.argv) > 4 else 300
with one_line_errors("the same command continues"):  # after Ctrl-C or a full disk
    model = xling_tf.fine_tune(start, pairs, output=output, steps=steps)
if model is None:
    sys.exit("stopped; the same command continues")
answers = ["You can return it within 30 days.", "We open at nine."]
scores = model.similarity("How do I get my money back?", answers)[0]
for answer, score in zip(answers, scores, strict=True):
    print(f"{score:.2f}  {answer}")
