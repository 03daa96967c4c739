"""Every number that was chosen and not derived, each with how."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Thresholds:
    """What the server sends, and what it takes for equal, near, few or noise.

    A comment says of what a value is, and behind the colon why it is so large; `by hand` where no
    reason fixes it, and the tests and records are what it has to show.
    """

    # the weights that are sent
    sample_tokens: int = 2048  # of the measurement: their mean is known to 2 % of their spread
    size_rows: int = 4096  # of the token table, which show the size of all: by hand
    anchor_height: float = 3.0  # of anchors in a trained table, in sizes of its entries: by hand
    attention_scale: float = 1e8  # of the first scores: their softmax is a choice of one position
    masked_mixing: float = 10.0  # of the last attention, gradient for unmasked tokens: by hand
    sharp: float = 1e6  # size of the measurement before GELU: it then cuts like ReLU
    soft: float = 1e-3  # and before ReLU, which has no scale: the second layers' gradient is small
    flow: float = 4e-4  # size of the second layers behind GELU, an entry of the width: by hand
    lowest_edge: float = 6.0  # standard deviations below the mean: no token is lower
    codes: float = 0.3  # labels' are in [1, 1.3]: sums of one, two, three of them do not overlap
    codes_masked: float = 3.0  # of a masked model: tokens share their gradient anyway
    codes_tied: float = 0.005  # in a table also read from, in sizes of its entries: by hand
    decoy_logit: float = 40.0  # of the token every place predicts: exp(5 - 40) is rounding
    label_logit: float = 5.0  # the largest of any other token: far below the decoy's, by hand
    constant: float = 10.0  # read everywhere by a decoder without bias, makes up the 40: by hand

    # bins, from rows of a gradient
    signal: float = 0.02  # of the largest difference: a bin below it holds nothing but rounding
    jump_square: float = 2.0  # of the square that noise alone would have; a jump has more: by hand
    jumps_sought: float = 1.5  # times those expected: what is too many is given up afterwards
    jump_sweeps: int = 2  # over jumps: the first were found while all others were missing
    sigmas: float = 6.0  # of noise: of a vocabulary of normal draws, none is beyond
    many_words: int = 256  # above the noise: with fewer, all of the vocabulary can be tried

    # pairs of token and position
    exact: float = 1e-3  # of a bin's norm; of which less is left, it is beyond doubt: by hand
    pair_cells: int = 2**23  # vectors times positions times tokens at a time: 32 MiB of float32
    many_candidates: int = 4096  # tokens: of more, those at the ends of all products go first
    pair_ends: int = 256  # of them at either end: by hand
    degenerate: float = 1e-4  # of a pair's square off those read: below it, shares are rounding
    most_pairs: int = 4  # in one bin: by hand
    pair_sweeps: int = 2  # over a bin's pairs, each chosen anew: by hand
    open_share: float = 0.8  # of bins that no one pair explains: above it, exact is the exception
    least_factor: float = 0.4  # of several, of the usual: what counts less is a way of writing
    least_factor_masked: float = 0.2  # the same: masked sequences differ in gradient themselves
    exact_readings: float = 0.05  # of all: with dropout or noise none is exact

    # groups of sequences, by their marks
    same: float = 1e-2  # distance of marks of one group, in sizes of all marks: by hand
    near: float = 4.0  # times that: a token alone in its bin may be so far from its group, by hand
    few_alike: float = 0.15  # of a sequence's tokens: fewer are equal tokens of two, in one bin
    held_places: float = 0.1  # of a group's: one that has fewer sure ones is not told, by hand
    most_choices: int = 2**20  # of groups for the tokens of one bin, all tried: by hand
    sharp_sum: float = 0.1  # of what a sum may miss: a right one misses less
    rare: float = 0.25  # of the readings of a place's commonest token; sure has more: by hand
    twins: float = 4 * exact  # of a factor: farther apart, tokens that swap leave something

    # labels, by their codes
    clear: float = 4.0  # times the usual miss: nearer is right, farther is wrong
    agree: float = 0.01  # miss of the codes of known labels: above it, dropout was on their way
    rounding: float = 1e-4  # of the commonest label's share: below it is rounding
    factor_rounds: int = 5  # of factors of blocks and sequences in turn: they settle
    factor_range: float = 0.2  # in logarithms: unread labels leave a factor known but roughly
    factors_tried: int = 101  # in that range: each 0.4 % from the next

    # best pairs, where nothing is exact
    not_dropped: float = 1e-3  # of the size of a vector's entries: what is nearer was not dropped
    held_entries: float = 0.6  # that a sum must explain exactly: dropout leaves more
    fit_rounds: int = 8  # each on the entries that agreed in the one before: by hand
    fit_outlier: float = 2.5  # times the median miss: what is farther does not agree, by hand
    alone_share: float = 0.75  # that one pair explains of a bin: it has half of one with two
    second_share: float = 0.1  # that a bin's second token explains at least: by hand

    # rows of the token table, with dropout
    dropped_entries: float = 1e-3  # that are zero: without dropout, hardly any
    row_exact: float = 1e-5  # of the size of a row's entries; less missed is exact: by hand
    row_held: float = 0.5  # of entries explained: three lookups leave 0.73 that none has dropped
    row_whole: float = 0.99  # of entries explained, of a row that holds one lookup: nearly all
    row_spare: int = 8  # entries explained beyond those that any fit explains: by hand
    row_rounds: int = 10  # each on the entries that agreed in the one before: by hand
    row_outlier: float = 2.0  # times the median miss: what is farther does not agree, by hand
    most_places: int = 3  # of one token: by hand
    most_fits: int = 5000  # combinations of places that are tried for a row: by hand
    fit_cells: int = 2**24  # numbers at a time: 128 MiB of float64
    entries_agreed: int = 3  # in which marks are of one group: by hand
    group_votes: int = 3  # tokens that agree and make a group: by hand


CHOSEN = Thresholds()
