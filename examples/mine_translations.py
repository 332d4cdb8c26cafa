"""Finds the translations in two lists of sentences that are not aligned.

python examples/mine_translations.py

A score of 1.2 says that a pair is 1.2 times as similar as its sentences are to their neighbours.
"""

import sys

import xling_tf

english = [
    "Where is the station?",
    "The cat sleeps.",
    "I like tea.",
    "It rains.",
    "She sings well.",
]
spanish = [
    "Llueve.",
    "Mi coche es rojo.",
    "¿Dónde está la estación?",
    "El gato duerme.",
    "Me gusta el té.",
]
model = xling_tf.load(*sys.argv[1:])
for pair in xling_tf.bitext_mining(model.encode(english), model.encode(spanish)):
    print(f"{pair.score:.2f}  {english[pair.first]}  {spanish[pair.second]}")
