"""Which packages the default corpora come from, and who reads them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from xling_tf.corpora.debian.cataclysm import extract_cataclysm
from xling_tf.corpora.debian.extraction import LOCALES, Extractor
from xling_tf.corpora.debian.gettext import extract_gettext
from xling_tf.corpora.debian.manuals import manual_extractor
from xling_tf.corpora.debian.sword import extract_bibles
from xling_tf.corpora.debian.wesnoth import extract_wesnoth


@dataclass(frozen=True, kw_only=True)
class Source:
    """One corpus made from packages.

    Attributes:
        name: Names the files.
        description: What it is.
        extract: Reads the unpacked packages.
        licence: Stands in where a package's own copyright file does not state one.
        packages: Patterns of package names that hold all languages.
        packages_by_language: Patterns of packages of one language; both languages of a pair must be
            here. Empty where `packages` is all.
    """

    name: str
    description: str
    extract: Extractor
    licence: str
    packages: tuple[str, ...] = ()
    packages_by_language: Mapping[str, str] = field(default_factory=dict)

    def patterns(self, source_language: str, target_language: str) -> tuple[str, ...]:
        """The patterns to fetch for a pair; empty where the source does not have that pair."""
        wanted = (source_language, target_language)
        if not self.packages_by_language:
            return self.packages
        if not all(language in self.packages_by_language for language in wanted):
            return ()
        return self.packages + tuple(self.packages_by_language[language] for language in wanted)


SOURCES = (
    Source(
        name="wesnoth",
        description="The Battle for Wesnoth: dialogues, stories, unit descriptions, help",
        extract=extract_wesnoth,
        licence="GPL-2+",
        packages=(r"wesnoth-(?P<version>\d+\.\d+)-(?!(?:core|dbg|music|server|tools)$)[a-z]+",),
    ),
    Source(
        name="cataclysm-dda",
        description="Cataclysm: Dark Days Ahead: talk, lore, item and monster descriptions",
        extract=extract_cataclysm,
        licence="CC-BY-SA-3.0",
        packages=("cataclysm-dda-data",),
    ),
    Source(
        name="libreoffice-help",
        description="LibreOffice help",
        extract=manual_extractor("usr/share/libreoffice/help/{locale}/text"),
        licence="MPL-2.0",
        packages_by_language={
            "en": "libreoffice-help-en-us",
            "es": "libreoffice-help-es",
            "fr": "libreoffice-help-fr",
            "de": "libreoffice-help-de",
            "zh": "libreoffice-help-zh-cn",
        },
    ),
    Source(
        name="gimp-help",
        description="GIMP user manual",
        extract=manual_extractor("usr/share/gimp/*/help/{locale}"),
        licence="GFDL-1.2+, no invariant sections",
        packages_by_language={
            "en": "gimp-help-en",
            "es": "gimp-help-es",
            "fr": "gimp-help-fr",
            "de": "gimp-help-de",
            "zh": "gimp-help-zh-cn",
        },
    ),
    Source(
        name="bible",
        description="World English Bible and Reina-Valera 1909",
        extract=extract_bibles,
        licence="public domain",
        packages_by_language={"en": "sword-text-web", "es": "sword-text-sparv"},
    ),
    Source(
        name="freeciv",
        description="Freeciv help and messages",
        extract=extract_gettext,
        licence="GPL-2+",
        packages=("freeciv-data",),
    ),
    Source(
        name="applications",
        description="Messages, tooltips and help of applications",
        extract=extract_gettext,
        licence="GPL-2+",
        packages=(
            "krita-l10n",
            "digikam-data",
            "gnucash-common",
            "vlc-l10n",
            "darktable",
            "gramps",
            "git",
            "libvirt-l10n",
            "wordpress-l10n",
            "evolution-common",
            "kmymoney-common",
        ),
    ),
)

# The messages of gettext are English, so English is one side of every pair.
LANGUAGE_PAIRS = tuple(("en", language) for language in LOCALES if language != "en")
