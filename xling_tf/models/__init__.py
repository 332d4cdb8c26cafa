"""The model in the box: a small encoder that is installed with the package, for NumPy alone.

`make model` makes it again from text that packages carry; its README.md has its scores, and its
NOTICE the licences of the texts.
"""

from pathlib import Path

# The name by which every command and `xling_tf.load` take it, and its folder.
IN_THE_BOX = "multilingual-mini"
BOX_FOLDER = Path(__file__).parent / IN_THE_BOX
