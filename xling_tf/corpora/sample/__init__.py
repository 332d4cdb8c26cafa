"""A small corpus written for this project, in the layout that every data folder has.

It holds everyday sentences, chats and short stories in English, Spanish, French, German and Chinese,
inference pairs in English, and questions with answers in English and Spanish, under the project's own
licence. Short trial runs, tests and examples use it because it needs no network; it is far too small
to train a useful encoder.
"""

from pathlib import Path

SAMPLE_FOLDER: Path = Path(__file__).parent
