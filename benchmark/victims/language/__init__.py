from benchmark.victims.language.anatomy import LanguageAnatomy, LanguageBlock, language_anatomy
from benchmark.victims.language.build import build_language
from benchmark.victims.language.spec import LanguageSettings, LanguageSpec
from benchmark.victims.language.victim import LanguageVictim

__all__ = [
    "LanguageAnatomy",
    "LanguageBlock",
    "LanguageSettings",
    "LanguageSpec",
    "LanguageVictim",
    "build_language",
    "language_anatomy",
]
