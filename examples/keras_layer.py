"""Trains a Keras 3 model whose first layer is the encoder, and saves both.

python examples/keras_layer.py exported/use-multilingual reviews.keras
"""

import sys

import keras
import numpy as np

import xling_tf

texts = np.array(["I loved it.", "Wonderful!", "A waste of time.", "Terrible service."], dtype=object)
is_good = np.array([1, 1, 0, 0])
model = keras.Sequential(
    [
        keras.Input((), dtype="string"),
        xling_tf.KerasEncoder(sys.argv[1], trainable=False),
        keras.layers.Dense(1, activation="sigmoid"),
    ]
)
model.compile(keras.optimizers.Adam(0.05), "binary_crossentropy")
model.fit(texts, is_good, epochs=20, verbose=0)
model.save(sys.argv[2])
print(model.predict(np.array(["Me encantó.", "Pésimo."], dtype=object), verbose=0).round(2))
