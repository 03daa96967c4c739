import os
import subprocess

from benchmark.identity import ROOT
from benchmark.running import launch

SAYS = """
import gc, sys
imported = gc.isenabled()

def main():
    print(imported, gc.isenabled(), gc.get_freeze_count() > 0, sys.argv[1:])
"""


def test_nothing_is_collected_while_a_process_imports_and_all_is_again_when_it_runs(tmp_path):
    (tmp_path / "says.py").write_text(SAYS)
    places = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    words = launch.command("says", "7", "a")
    said = subprocess.run(words, env=places, capture_output=True, text=True, check=True)
    assert said.stdout == "False True True ['7', 'a']\n"
