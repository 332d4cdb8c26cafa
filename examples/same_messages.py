"""Groups messages that probably say the same, in any of sixteen languages.

python examples/same_messages.py
python examples/same_messages.py messages.txt    # of your own, one a line
"""

import sys
from pathlib import Path

import xling_tf

messages = [
    "I forgot my password.",
    "Wie kündige ich mein Abonnement?",
    "The app closes when I open a photo.",
    "Ich habe mein Passwort vergessen.",
    "Do you ship to Canada?",
    "¿Dónde está mi paquete? Todavía no ha llegado.",
    "Cuando abro una foto, la aplicación se cierra.",
    "我忘记了密码。",
    "Mein Paket ist noch nicht angekommen.",
    "Comment puis-je résilier mon abonnement ?",
]
if len(sys.argv) > 1:
    messages = Path(sys.argv[1]).read_text("utf-8").splitlines()
model = xling_tf.load()
pairs = model.paraphrase_mining(messages, top_k=10)
# The more messages there are, the more alike two must be to say the same.
probabilities = model.probability(
    [messages[pair.first] for pair in pairs],
    [messages[pair.second] for pair in pairs],
    num_candidates=len(messages),
)
# Each message joins the group of the one that is most probably the same.
groups: dict[int, list[str]] = {}
for pair, probability in zip(pairs, probabilities, strict=True):
    old, new = sorted((pair.first, pair.second), key=lambda row: row not in groups)
    if probability < 0.5 or new in groups:
        continue
    if old not in groups:
        groups[old] = [f"      {messages[old]}"]
    groups[new] = groups[old]
    groups[new].append(f"{probability:.2f}  {messages[new]}")
for group in {id(group): group for group in groups.values()}.values():
    print(*group, sep="\n", end="\n\n")
