"""What an attack may try behind the wall, a few lines each; each is contained and recorded."""

import socket
import time

import pytest

NOWHERE = "NothingFound: nothing (<string>:"
LOOK = """
def same(thing):
    if not isinstance(thing, torch.Tensor) or thing.numel() * thing.element_size() != <size>:
        return False
    return hashlib.sha256(thing.contiguous().numpy().tobytes()).hexdigest() == "<truth>"
"""
NOTHING = "\nraise NothingFound('nothing')"


def reading(*places):
    """Return a case that reads places, and says which it could."""
    return f"""
for place in {places!r}:
    try:
        found = os.listdir(place) if os.path.isdir(place) else Path(place).read_bytes()
    except OSError:
        continue
    assert not found, f"{{place}} holds {{found[:5]}}"
{NOTHING}"""


ASKED = {
    "frames": LOOK
    + """
frame = sys._getframe()
while frame:
    assert not any(same(each) for each in frame.f_locals.values()), "found"
    frame = frame.f_back"""
    + NOTHING,
    "garbage collector": LOOK + "assert not any(map(same, gc.get_objects())), 'found'" + NOTHING,
    "parent's memory": """
needle = bytes.fromhex("<bytes>")
others = [pid for pid in os.listdir("/proc") if pid.isdigit() and int(pid) != os.getpid()]
for pid in others:
    assert Path(f"/proc/{pid}/comm").read_text() == "bwrap\\n", "found another"
    try:
        memory = open(f"/proc/{pid}/mem", "rb")
        maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
    except OSError:
        continue
    for line in maps:
        low, high = (int(end, 16) for end in line.split()[0].split("-"))
        try:
            memory.seek(low)
            assert needle not in memory.read(min(high - low, 2**26)), "found"
        except (OSError, ValueError, OverflowError):
            continue"""
    + NOTHING,
    "parent's files": reading("/proc/1/cwd/results", "/proc/1/root<root>/results"),
    "data of scikit-learn": """
from sklearn.datasets import load_digits
load_digits()""",
    "data of scikit-image": """
import skimage
found = [p for p in Path(skimage.__file__).parent.joinpath("data").rglob("*")]
assert not found, found"""
    + NOTHING,
    "files of packages": """
names = ("digits.csv.gz", "astronaut.png", "lfw_subset.npy", "china.jpg", "topics.py")
bases = {*sys.path, *glob.glob("/usr/lib/python3*"), *glob.glob("/usr/lib/python3/*-packages")}
for base in bases:
    for package in ("sklearn", "skimage", "pydoc_data"):
        for folder, _, files in os.walk(f"{base}/{package}"):
            assert not set(names) & set(files), folder"""
    + NOTHING,
    "pydoc_data": "from pydoc_data.topics import topics",
    "mirror": reading("<mirror>"),
    "results": reading("<root>/results"),
    "protocols": reading("<root>/protocols"),
    "repository": reading("<root>/.git", "<root>/tests", "<root>/leaderboard", "<root>/docs"),
    "home": reading("<home>/.cache", "<home>/.ssh", "<home>/.netrc", "/etc/passwd", "/etc/shadow"),
    "other plugins": reading("<plugins>/honest"),
    "environment": """
known = "PATH HOME USER HF_HUB_OFFLINE PYTHONDONTWRITEBYTECODE LANG PWD LC_CTYPE"
more = set(os.environ) - set(known.split()) - {"LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES"}
more = {name for name in more if not name.startswith(("KMP_", "OMP_", "TORCH"))}
assert not more, more"""
    + NOTHING,
    "socket": """
for kind, place in ((socket.AF_INET, ("127.0.0.1", <port>)), (socket.AF_UNIX, "\\0gradleak")):
    with socket.socket(kind) as made:
        made.settimeout(1)
        assert made.connect_ex(place), "connected"
made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
try: made.sendto(b"x", ("192.0.2.1", 53))
except OSError: pass
else: raise AssertionError("sent")"""
    + NOTHING,
    "200 forks": """
made = []
try:
    for _ in range(200):
        pid = os.fork()
        if not pid: os.execv("/bin/sleep", ["sleep", "30"])
        made.append(pid)
except BlockingIOError: pass
finally:
    for pid in made: os.kill(pid, 9); os.waitpid(pid, 0)
assert len(made) < 200"""
    + NOTHING,
    "another namespace": """
libc = ctypes.CDLL(None, use_errno=True)
assert libc.unshare(0x10000000), "became root of one"
assert libc.mount(b"none", b"/tmp", b"tmpfs", 0, None), "mounted"
"""
    + NOTHING,
    "100 GiB": "bytearray(100 << 30)",
    "100 GiB of torch": "torch.empty(100 << 30, dtype=torch.uint8)",
    "100 GiB shared": "mmap.mmap(-1, 100 << 30)",
    "100 GiB of a file in memory": "os.ftruncate(os.memfd_create('x'), 100 << 30)",
    "raised limits": """
for name in ("AS", "DATA", "FSIZE", "NPROC", "CORE", "NOFILE"):
    which = getattr(resource, f"RLIMIT_{name}")
    soft, hard = resource.getrlimit(which)
    assert hard != resource.RLIM_INFINITY, name
    try: resource.setrlimit(which, (hard + 1, hard + 1))
    except (ValueError, OSError): pass
    else: raise AssertionError(f"raised {name}")
    resource.setrlimit(which, (hard, hard))
bytearray(100 << 30)""",
    "disk filling": """
total, block = 0, b"x" * 2**20
for place in ("/tmp", "/dev/shm", "/", "/dev", "<plugins>/hostile", "<root>", "/var/tmp"):
    for number in range(400):
        try:
            with open(f"{place}/{number}", "wb", 0) as file: total += file.write(block)
        except OSError: break
for place in ("/tmp", "/dev/shm"):
    for file in Path(place).glob('[0-9]*'): file.unlink()
assert 2**20 <= total <= 2**28, total"""
    + NOTHING,
    "writes outside": """
places = ("<root>/benchmark/x", __file__, "<plugins>/honest/attack.py", f"{sys.prefix}/x",
    torch.__file__, "<root>/results/x", "<home>/x", "/etc/passwd", "/proc/sys/kernel/core_pattern",
    *glob.glob("/tmp/gradleak-*/*/*"))
own = os.stat("/tmp").st_dev  # the wall's, where a home may seem to lie
for place in places:
    try: open(place, "ab").close()
    except OSError: continue
    assert os.stat(place).st_dev == own, place"""
    + NOTHING,
    "observations rewritten": """
found = glob.glob("/tmp/gradleak-*/**/*.safetensors", recursive=True)
assert found
for place in found:
    for what in (os.remove, lambda p: os.rename(p, p + "x"), lambda p: os.chmod(p, 0o777)):
        try: what(place)
        except OSError: continue
        raise AssertionError(place)"""
    + NOTHING,
    "answers as FIFO, link and sparse file": """
(folder,) = glob.glob("/tmp/gradleak-*/child-*")
place = f"{folder}/answer-0.safetensors"
for what in (os.mkfifo, lambda p: os.symlink("<root>/README.md", p), os.mkdir):
    try: what(place)
    except OSError: continue
    raise AssertionError("made")
try: os.truncate(os.open("/tmp/sparse", os.O_CREAT | os.O_RDWR), 40 << 30)
except OSError: pass
else: raise AssertionError("truncated")"""
    + NOTHING,
    "exit": "sys.exit(0)",
    "raises what no one expects": """
class Odd(Exception):
    def __str__(self): return "<script>alert(1)</script>\\n\\x00\\x1b[31m" + "x" * 10**6
raise Odd""",
    "None": "return None",
    "NaN": "return Reconstruction(grey(seen).images * torch.nan)",
    "an answer of another shape": "return Reconstruction(torch.zeros(1, 1, 4096, 4096))",
    "an answer of 10 MB": "return Reconstruction(torch.zeros(1, 1, 1600, 1600))",
    "gradients as text": "return Reconstruction(grey(seen).images, 'x' * 10**6)",
    "a failure of a million letters": "return Reconstruction(None, failure='<b>\\n' * 10**6)",
    "Python that never ends": "while True: pass",
}
SAYS = {
    "data of scikit-learn": "Error",
    "pydoc_data": "ModuleNotFoundError",
    "100 GiB": "passed its memory limit of 256 MiB a trial",
    "100 GiB of torch": "passed its memory limit of 256 MiB a trial",
    "100 GiB shared": "Cannot allocate memory",
    "100 GiB of a file in memory": "File too large",
    "raised limits": "passed its memory limit of 256 MiB a trial",
    "exit": "SystemExit: 0",
    "raises what no one expects": "Odd: <script>alert(1)</script>",
    "None": "returned a NoneType; wanted a Reconstruction",
    "NaN": "are not finite",
    "an answer of another shape": "makes no sense",
    "an answer of 10 MB": "makes no sense",
    "gradients as text": "gradient evaluations; wanted",
    "a failure of a million letters": "<b> <b>",
    "Python that never ends": "passed its limit of 1 s a trial",
}


@pytest.fixture(scope="module")
def listening(stage):
    with socket.create_server(("127.0.0.1", 0)) as server:
        stage.places["port"] = server.getsockname()[1]
        yield


@pytest.mark.parametrize("name", ASKED)
def test_what_is_tried_is_contained_and_recorded(stage, before, listening, name):
    record = stage.play(ASKED[name], brief="never ends" in name)
    assert record.status == ("timed_out" if "never ends" in name else "failed")
    assert SAYS.get(name, NOWHERE) in record.reason
    assert len(record.reason) <= 200
    assert record.reason.isprintable()
    assert record.metrics == stage.bench.run("prior_only", trials=1)[0].metrics
    assert stage.honest() == before


@pytest.mark.parametrize("what", ["time.sleep = time.perf_counter = torch.full", "patched"])
def test_modules_that_are_patched_are_its_own(stage, before, what):
    case = "import benchmark.running.inprocess as own\nown.time.perf_counter = lambda: -1823.0\n"
    case += "torch.Tensor.sum = torch.Tensor.mean = None\n"
    began = time.perf_counter()
    record = stage.play(case + "return grey(seen)" if what == "patched" else case + f"{what}\n1/0")
    assert 0 < record.seconds < time.perf_counter() - began
    stage.sandbox._children["hostile"].kill()
    assert stage.honest() == before
