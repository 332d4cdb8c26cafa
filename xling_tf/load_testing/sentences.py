"""What the clients of a load test say: short sentences of several languages."""

import json
from collections.abc import Sequence

SENTENCES = (
    "Where is the nearest train station?",
    "The shop on the corner opens at nine.",
    "She has been learning Spanish for two years.",
    "We could not find the tickets anywhere.",
    "It rained all night, but the morning was bright.",
    "Please send me the address once more.",
    "¿Dónde está la parada del autobús?",
    "La tienda cierra temprano los domingos.",
    "Mi hermana vive cerca del mar.",
    "No encontramos las llaves de la casa.",
    "Mañana viajaremos a la montaña.",
    "El café de aquí es muy bueno.",
    "Wann fährt der letzte Zug nach Hause?",
    "Das Fenster in der Küche steht offen.",
    "Wir haben gestern lange auf dich gewartet.",
    "Der Weg durch den Wald ist kürzer.",
    "Où avez-vous acheté ces chaussures ?",
    "Le petit déjeuner est servi à huit heures.",
    "Nous cherchons un appartement au centre.",
    "Il neige depuis trois jours.",
    "Dov'è il mercato del pesce?",
    "Il treno è in ritardo di dieci minuti.",
    "Onde posso carregar o telefone?",
    "O museu fica do outro lado do rio.",
    "Где находится ближайшая аптека?",
    "Завтра утром мы поедем на дачу.",
    "车站离这里远吗？",
    "他昨天买了一辆新自行车。",
    "駅までどのくらいかかりますか。",
    "هل يوجد مطعم قريب من هنا؟",
    "Trenin saat kaçta kalktığını biliyor musun?",
    "Gdzie mogę kupić bilet na tramwaj?",
    "ok",
    "Thanks a lot for everything that you and your family did for us while we were staying in town!",
)


def batches(sentences: int) -> list[list[str]]:
    """Batches of so many sentences, one beginning with each of `SENTENCES`.

    Example:
        >>> [len(batch) for batch in batches(2)] == [2] * len(SENTENCES)
        True
    """
    return [
        [SENTENCES[(start + index) % len(SENTENCES)] for index in range(sentences)]
        for start in range(len(SENTENCES))
    ]


def bodies(sentences: int) -> Sequence[bytes]:
    """Bodies of predict requests in row form, each with so many sentences."""
    return [json.dumps({"instances": batch}).encode() for batch in batches(sentences)]
