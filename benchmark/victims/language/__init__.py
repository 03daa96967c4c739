from benchmark.victims.language.anatomy import TextAnatomy, TextBlock
from benchmark.victims.language.spec import TextSettings, TextSpec
from benchmark.victims.language.victim import TextVictim

__all__ = ["TextAnatomy", "TextBlock", "TextSettings", "TextSpec", "TextVictim"]
