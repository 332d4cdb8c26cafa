"""Fine-tunes a model on pairs of questions and answers in a CSV file.

python examples/fine_tune.py exported/use-multilingual faq.csv exported/faq

faq.csv begins with the line "question,answer"; a few hundred rows are enough.
"""

import sys

import xling_tf

start, pairs, output = sys.argv[1:4]
steps = int(sys.argv[4]) if len(sys.argv) > 4 else 300
model = xling_tf.fine_tune(start, pairs, output=output, steps=steps)
answers = ["You can return it within 30 days.", "We open at nine."]
print(model.similarity(model.encode("How do I get my money back?"), model.encode(answers)))
