"""Results files as evaluations write them, for the tests of reports."""

import copy
import json
from pathlib import Path

RESULTS = {
    "system": {"name": "mine", "checksum": "c0ffee", "description": {"preset": "en-es"}},
    "command": "python evaluation/main.py --model exported/en-es",
    "seed": 0,
    "complete": True,
    "seconds": 12.5,
    "scores": {
        "sts": {"stsb.en.dev": {"pearson_angular": 0.7, "num_pairs": 4.0}},
        "senteval": {
            "MR": {"logistic/accuracy": 0.61, "network/accuracy": 0.62},
            "SST2": {"logistic/accuracy": 0.64, "network/accuracy": 0.65},
        },
        "bitext": {"wmt22.en-zh": {"en-zh/precision_at_1": 0.5, "error_rate": 0.5}},
        "eigen_similarity": {"en-de": {"eigen_similarity": 0.8, "eigen_similarity_stderr": 0.02}},
    },
    "illustrations": {
        "sentence_map": {
            "numbers": {
                "languages": ["en", "de"],
                "points": {
                    "en": {"texts": ["one", "two"], "x": [0.0, 1.0], "y": [0.0, 1.0]},
                    "de": {"texts": ["eins", "zwei"], "x": [0.1, 0.9], "y": [0.0, 1.0]},
                },
            }
        },
        "heat_map": {
            "numbers": {
                "languages": ["en", "de"],
                "texts": [["one", "two"], ["eins", "zwei"]],
                "similarities": [[0.9, 0.1], [-0.2, 0.8]],
            }
        },
        "retrieval_errors": {
            "numbers": {
                "num_queries": 2,
                "num_errors": 1,
                "errors": [
                    {
                        **{"query": "one", "found": "zwei", "right": "eins"},
                        **{"found_score": 0.8, "right_score": 0.7},
                    }
                ],
            }
        },
    },
    "datasets": {
        "sts": {
            "stsb.en.dev": {
                "protocol": {"similarity": "-arccos", "num_pairs": 4},
                "files": {"sts/stsb.en.dev.tsv": {"checksum": "aaaa1111", "lines": 5}},
                "seconds": 1.0,
            }
        }
    },
    "skipped": {"senteval/TREC": "expected: senteval/TREC.tsv"},
}


def results(name: str = "mine", **changes) -> dict:
    """A copy with the system's name; changes replace whole parts."""
    made = copy.deepcopy(RESULTS) | changes
    made["system"]["name"] = name
    return made


def write(folder: Path, content: dict, name: str = "") -> Path:
    path = folder / f"{name or content['system']['name']}.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path
