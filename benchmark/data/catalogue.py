"""The data sets by name: what each is, whose it is, and the digest its content must have.

Imports nothing heavy, so that listing the catalogue is instant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from benchmark.errors import ProtocolError

Kind = Literal["image", "text"]
Split = Literal["train", "test"]
Tier = Literal["embedded", "mirror", "hub"]


@dataclass(frozen=True)
class Hub:
    """One parquet file a split, in one commit of a data set on the Hugging Face hub.

    Attributes:
        repository: owner/name.
        revision: the commit.
        files: path in the repository by split.
        columns: names of the image and the label column, or of the text.
        rows: where the order of a split's rows matters, the rows to take; else all.
    """

    repository: str
    revision: str
    files: Mapping[str, str] = field(hash=False)
    columns: tuple[str, ...]
    rows: Mapping[str, tuple[range, ...]] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Entry:
    """One data set.

    Split `train` is public (statistics, surrogate data), `test` is private (trials are drawn
    from it); they share no picture and no text.

    Attributes:
        name: the name a protocol uses.
        kind: what it holds.
        description: content, native size in pixels, how it is split.
        source: where it comes from.
        licence: as stated by its authors.
        citation: whom to cite.
        tier: the tiers that can supply it, in the order tried.
        size: number of items by split: pictures before any crop, or users; empty where it is the
            copy's.
        digest: sha256 of the decoded content by split, checked on load. Images: the bytes of every
            picture (uint8, or little-endian float32), then of the labels (little-endian int64).
            Text: user ids and texts in UTF-8, each followed by a zero byte; of `pydoc` by split and
            Python version ("test 3.11.7"); one not listed is not checked. Empty where it is the
            copy's: then each file is held against the SHA256SUMS beside it, if there is one.
        class_names: of images, by label.
        crops: the sides in pixels at which a set of crops can be had; empty where pictures are
            resized to any side.
        hub: where the hub tier finds it.
        access: how to get it where no tier but the mirror has it, and on what terms.
        users_are: what a user is, of text.
    """

    name: str
    kind: Kind
    description: str
    source: str
    licence: str
    citation: str
    tier: tuple[Tier, ...]
    size: Mapping[str, int] = field(hash=False)
    digest: Mapping[str, str] = field(hash=False)
    class_names: tuple[str, ...] = ()
    crops: tuple[int, ...] = ()
    hub: Hub | None = None
    access: str = ""
    users_are: str = ""


_DIGITS = Entry(
    name="digits",
    kind="image",
    description="handwritten digits, grey, 8x8; the first 1000 train, the last 797 test",
    source="scikit-learn, load_digits (test set of the UCI original)",
    licence="CC BY 4.0",
    citation="Alpaydin and Kaynak, Optical Recognition of Handwritten Digits, UCI, 1998",
    tier=("embedded",),
    size={"train": 1000, "test": 797},
    digest={
        "train": "debfcf5dc7537a405e1d92272907abfd4c123ed916d467e058da721a5e664755",
        "test": "6c534fdaf8dc931cb4c190bd0966db98e1887a2855f8da2a767f74a733838a92",
    },
    class_names=tuple("0123456789"),
)

_PHOTOGRAPHS = Entry(
    name="photographs",
    kind="image",
    description=(
        "ten colour photographs in disjoint crops on a centred grid, at most 8x8 crops of 32 "
        "or 2x2 of 224 pixels a photograph, never resized; six photographs test (384 or 14 "
        "crops), four train (256 or 16); the label is the photograph"
    ),
    source="files bundled with scikit-image (eight) and scikit-learn (china, flower)",
    licence=(
        "public domain or CC0 (astronaut, chelsea, coffee, rocket, retina, hubble_deep_field), "
        "no known restrictions (immunohistochemistry), CC BY 2.0 (china by danielbuechele, "
        "flower by vultilion), none stated (stereo_motorcycle)"
    ),
    citation=(
        "van der Walt et al., scikit-image, PeerJ 2014; Pedregosa et al., scikit-learn, JMLR "
        "2011; stereo_motorcycle: Scharstein et al., GCPR 2014; retina: Haggstrom, 2014"
    ),
    tier=("embedded",),
    size={"train": 4, "test": 6},
    digest={
        "train": "b6757b2e0ac7cad729d48997f6291330954b7b4064bcd53e93bb7496f0cc1f56",
        "test": "e0457978020450aa3c97aac1aaf1fa55714328e2bfff2bc8e6657c08d603be07",
    },
    class_names=(
        "astronaut",
        "chelsea",
        "coffee",
        "rocket",
        "china",
        "flower",
        "retina",
        "hubble_deep_field",
        "immunohistochemistry",
        "stereo_motorcycle",
    ),
    crops=(32, 224),
)

_FACES = Entry(
    name="faces",
    kind="image",
    description=(
        "100 faces, grey, 25x25, all of class 1; the first 50 train, the last 50 test (identities "
        "are not given)"
    ),
    source="scikit-image, the first half of lfw_subset (the second half are no faces)",
    licence="none stated (Labeled Faces in the Wild, for research)",
    citation="Huang et al., Labeled Faces in the Wild, UMass Amherst 07-49, 2007",
    tier=("embedded",),
    size={"train": 50, "test": 50},
    digest={
        "train": "935d9a0a6cec5534ef0154fea613d4159bafc354915b8cb1765a089fb4607dd9",
        "test": "7f73599fd441af94963269013d8e299cfc7f0dca2530befb64a6e563a1b1c86c",
    },
    class_names=("not a face", "face"),
)

_PYDOC = Entry(
    name="pydoc",
    kind="text",
    description=(
        "help topics of Python, English prose with code; one topic a user, topics that repeat a "
        "paragraph of another left out; users in turn test and train (counts of Python 3.11)"
    ),
    source="CPython, pydoc_data.topics (its text changes with the Python version)",
    licence="PSF-2.0",
    citation="Python Software Foundation, The Python Language Reference",
    tier=("embedded",),
    size={"train": 33, "test": 34},
    digest={
        "train 3.11.2": "55bac82869a1361cfcba3979ac6d753d2b1ea6a74e25126f56f78a14b116c84c",
        "test 3.11.2": "24052a16101822316c942c0ea0ddafe682c8c01cfc4e8fa80bc53b615a7bacfe",
        "train 3.11.7": "5288f70ee27a8841d9b195039d87ee6b0dd139547daaec2e03e4d4cdbf7474ee",
        "test 3.11.7": "6ac5adf18784adffcde7f89f57abb3c57d2bdbabfb26f9879f6c303ace5ec992",
    },
    users_are="help topics",
)

_WIKITEXT = Entry(
    name="wikitext",
    kind="text",
    description=(
        "WikiText-2, articles with rare words as <unk>; the official validation split is train, "
        "the official test split test"
    ),
    source="Salesforce Research, wikitext-2-v1",
    licence="CC BY-SA 3.0",
    citation="Merity et al., Pointer sentinel mixture models, ICLR 2017",
    tier=("mirror", "hub"),
    size={"train": 60, "test": 60},
    digest={
        "train": "c43a622da9dd2b02ecc07e7b600eb6de9013e0875c3f3c23ad481e3438b292ac",
        "test": "46d86a888ff586bdb2a6893dd019dbbd42d18f708f53cd420c46afc55a0e826d",
    },
    hub=Hub(
        repository="Salesforce/wikitext",
        revision="b08601e04326c79dfdd32d625aee71d232d685c3",
        files={
            "train": "wikitext-2-v1/validation-00000-of-00001.parquet",
            "test": "wikitext-2-v1/test-00000-of-00001.parquet",
        },
        columns=("text",),
    ),
    users_are="articles",
)

_WIKITEXT103 = Entry(
    name="wikitext103",
    kind="text",
    description=(
        "WikiText-103, articles with every word; the official validation split is train, the "
        "first 1000 articles of the official training split are test"
    ),
    source="Salesforce Research, wikitext-103-raw-v1",
    licence="CC BY-SA 3.0",
    citation="Merity et al., Pointer sentinel mixture models, ICLR 2017",
    tier=("hub",),
    size={"train": 60, "test": 1000},
    digest={},
    hub=Hub(
        repository="Salesforce/wikitext",
        revision="b08601e04326c79dfdd32d625aee71d232d685c3",
        files={
            "train": "wikitext-103-raw-v1/validation-00000-of-00001.parquet",
            "test": "wikitext-103-raw-v1/train-00000-of-00002.parquet",
        },
        columns=("text",),
    ),
    users_are="articles",
)

_SHAKESPEARE = Entry(
    name="shakespeare",
    kind="text",
    description=(
        "speeches of plays, by the name before them, whatever the play; speakers in turn test and "
        "train, in the order of appearance"
    ),
    source="github.com/karpathy/char-rnn, data/tinyshakespeare",
    licence="public domain (Shakespeare); the repository names none for the file",
    citation="Karpathy, The unreasonable effectiveness of recurrent neural networks, 2015",
    tier=("mirror",),
    size={"train": 151, "test": 152},
    digest={
        "train": "67232a5d1213ceed41db7487dbaa3e681f1d58289ba688b40adb43bd832220c8",
        "test": "51c23d047ed269a26969531ceba93047858f25f3a1b07f0aafabf485da4ac959",
    },
    users_are="speakers",
)

_STACKEXCHANGE = Entry(
    name="stackexchange",
    kind="text",
    description=(
        "posts of five small Stack Exchange sites, by author; all with 1024 words or more; authors "
        "in turn test and train"
    ),
    source="the public data dumps of Stack Exchange, 2011 to 2024, from copies on GitHub",
    licence="CC BY-SA 3.0 or 4.0, by date",
    citation="Stack Exchange contributors, by site, post and author",
    tier=("mirror",),
    size={"train": 114, "test": 114},
    digest={
        "train": "f09a5b83495910ac82d97db94cb3a26be1a5e43fa68cabdeed32a139d277b031",
        "test": "dc87a8889b92a1d8b170b5bde0e3fe6d6e6f764006237a8d03d2995b7e32c447",
    },
    users_are="authors",
)

_STACKOVERFLOW = Entry(
    name="stackoverflow",
    kind="text",
    description=(
        "8000 questions of Stack Overflow, lower-cased, without their authors: consecutive "
        "questions of a tag joined to 4096 words or more; blocks in turn test and train"
    ),
    source="TensorFlow, stack_overflow_16k (training half), from a copy on GitHub",
    licence="CC BY-SA",
    citation="Stack Overflow contributors",
    tier=("mirror",),
    size={"train": 129, "test": 129},
    digest={
        "train": "0763d040104d851080cb6ddf191f163defc9fc2aea24f75fe72c501e11b6c7ab",
        "test": "0acd1bfbc36023427da3607cf560b627b5bd0e7488ff0ef1bc94aa99cda0c8fc",
    },
    users_are="blocks of posts, not authors",
)

_RANDOM_TOKENS = Entry(
    name="random_tokens",
    kind="text",
    description="tokens uniform over a tokenizer's vocabulary, 16384 a user; no text",
    source="drawn, each user from a seed",
    licence="none needed",
    citation="this benchmark",
    tier=("embedded",),
    size={"train": 128, "test": 128},
    digest={},
    users_are="seeds",
)

_MNIST = Entry(
    name="mnist",
    kind="image",
    description="handwritten digits, grey, 28x28, the official splits",
    source="yann.lecun.com/exdb/mnist",
    licence="none stated by the authors",
    citation="LeCun et al., Gradient-based learning applied to document recognition, 1998",
    tier=("mirror", "hub"),
    size={"train": 60000, "test": 10000},
    digest={
        "train": "d18cfd466eb143ac1097fde604dba9eec4116885869d04cc648b510949f9e88c",
        "test": "a0863a96c44e5666edbb30c4071ee79ca0514c621e6349c5967fc78e7305c891",
    },
    class_names=tuple("0123456789"),
    hub=Hub(
        repository="ylecun/mnist",
        revision="77f3279092a1c1579b2250db8eafed0ad422088c",
        files={
            "train": "mnist/train-00000-of-00001.parquet",
            "test": "mnist/test-00000-of-00001.parquet",
        },
        columns=("image", "label"),
    ),
)

_CIFAR10 = Entry(
    name="cifar10",
    kind="image",
    description=(
        "objects, colour, 32x32, an exact part of the official splits: of train the first 4000 "
        "and the first 1017 of batches 2 to 5, of test the first 1017"
    ),
    source="www.cs.toronto.edu/~kriz/cifar.html",
    licence="none stated by the authors",
    citation="Krizhevsky, Learning multiple layers of features from tiny images, 2009",
    tier=("mirror", "hub"),
    size={"train": 8068, "test": 1017},
    digest={
        "train": "ba528f0b5d7b82aaf9e8c45fb27f4e57002b4c93637813809c0dc8b4a2e8e3bc",
        "test": "7079b24dd5a645f3cebe565f0a9a07c6170ae3b18de923ff2f32e21b7cf62a67",
    },
    class_names=(
        "airplane",
        "automobile",
        "bird",
        "cat",
        "deer",
        "dog",
        "frog",
        "horse",
        "ship",
        "truck",
    ),
    hub=Hub(
        repository="uoft-cs/cifar10",
        revision="0b2714987fa478483af9968de7c934580d0bb9a2",
        files={
            "train": "plain_text/train-00000-of-00001.parquet",
            "test": "plain_text/test-00000-of-00001.parquet",
        },
        columns=("img", "label"),
        # The hub keeps the order of the original archive: batches 4, 3, 2, 5, 1.
        rows={
            "train": (
                range(40000, 44000),
                range(20000, 21017),
                range(10000, 11017),
                range(0, 1017),
                range(30000, 31017),
            ),
            "test": (range(1017),),
        },
    ),
)

_ORL_FACES = Entry(
    name="orl_faces",
    kind="image",
    description=(
        "faces of 40 people, ten each, grey, 112x92, of which the central 92x92; the first five "
        "of each person train, the last five test; the label is the person"
    ),
    source="AT&T Laboratories Cambridge, the ORL Database of Faces",
    licence="free for research with credit to the Olivetti Research Laboratory",
    citation="Samaria and Harter, Parameterisation of a stochastic model, WACV 1994",
    tier=("mirror",),
    size={"train": 200, "test": 200},
    digest={
        "train": "65e0952f06fccbe908c8170518ba55b853e43e103d2ae72632c308cc04fffb3d",
        "test": "8d2b72298f5fad019a1403ed4cd0173da8a3ab674882a1b9c4f250e98c9db46a",
    },
    class_names=tuple(f"s{person}" for person in range(1, 41)),
    access=(
        "put faces/orl_faces.npz or the archive's s1/1.pgm to s40/10.pgm under faces/ of the mirror"
    ),
)

_IMAGENET = Entry(
    name="imagenet",
    kind="image",
    description=(
        "photographs of 1000 classes, colour, of any size: the shorter side becomes 256/224 of the "
        "side wanted (Pillow, bicubic), of which the centre; ILSVRC 2012's validation images or "
        "any part of them, in order of class and file name: every fifth train, the others test; "
        "how many is the copy's matter, and with one image a class the splits share no class"
    ),
    source="www.image-net.org, ILSVRC 2012",
    licence="non-commercial research and education; the images belong to their owners",
    citation="Russakovsky et al., ImageNet Large Scale Visual Recognition Challenge, IJCV 2015",
    tier=("mirror",),
    size={},
    digest={},
    access=(
        "gated: accept the terms at image-net.org or of ILSVRC/imagenet-1k on the hub, and put "
        "imagenet/val/<wnid>/*.JPEG or imagenet/images/<wnid>_*.JPEG into the mirror"
    ),
)

_MS_CELEB_1M = Entry(
    name="ms_celeb_1m",
    kind="image",
    description=(
        "faces of some 100,000 people, colour, aligned, 112x112 (others: shorter side resized by "
        "Pillow, bicubic, centre kept); every fifth person train, the others test; the label is "
        "the person; how many is the copy's matter"
    ),
    source="Microsoft Research; aligned: InsightFace, MS1M",
    licence="non-commercial research; withdrawn by Microsoft in 2019, no consent of the people",
    citation="Guo et al., MS-Celeb-1M, ECCV 2016; Deng et al., ArcFace, CVPR 2019",
    tier=("mirror",),
    size={},
    digest={},
    access=(
        "no official source is left: put ms_celeb_1m/train.rec and train.idx (InsightFace) or "
        "ms_celeb_1m/<identity>/*.jpg into the mirror"
    ),
)

CATALOGUE: dict[str, Entry] = {
    found.name: found
    for found in (
        _DIGITS,
        _PHOTOGRAPHS,
        _FACES,
        _PYDOC,
        _WIKITEXT,
        _WIKITEXT103,
        _SHAKESPEARE,
        _STACKEXCHANGE,
        _STACKOVERFLOW,
        _RANDOM_TOKENS,
        _MNIST,
        _CIFAR10,
        _ORL_FACES,
        _IMAGENET,
        _MS_CELEB_1M,
    )
}
"""Every data set by name."""


def entry(name: str) -> Entry:
    """Return a data set's entry; ProtocolError where none has this name."""
    if name not in CATALOGUE:
        raise ProtocolError(f"data set {name!r} is unknown; known are {', '.join(CATALOGUE)}")
    return CATALOGUE[name]


def known(name: str, kind: Kind, split: str) -> Entry:
    """Return the entry of a set of this kind; ProtocolError where kind or split is not had."""
    found = entry(name)
    if found.kind != kind:
        names = ", ".join(other.name for other in CATALOGUE.values() if other.kind == kind)
        raise ProtocolError(f"data set {name!r} holds {found.kind}; {kind} sets are {names}")
    if split not in ("train", "test"):
        raise ProtocolError(f"data set {name!r} has no split {split!r}; wanted train or test")
    return found
