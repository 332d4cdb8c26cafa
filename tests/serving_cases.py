"""The protocol's table: requests to the models of serving_models.py, and their exact answers."""

from serving_answer_cases import ANSWER_CASES
from serving_path_cases import PATH_CASES
from serving_refusal_cases import REFUSAL_CASES
from serving_syntax_cases import SYNTAX_CASES

CASES = [*PATH_CASES, *ANSWER_CASES, *SYNTAX_CASES, *REFUSAL_CASES]
