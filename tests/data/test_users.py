import pytest

from benchmark.data import load_tokenizer, load_tokens
from benchmark.protocol import TextProtocol, load_protocol, protocol_files


@pytest.mark.slow
def test_every_protocol_of_text_finds_its_users_in_the_mirror(user_mirror):
    mirror = user_mirror("text")
    protocols = [load_protocol(name) for name in protocol_files()]
    texts, short = {}, []
    for protocol in protocols:
        if not isinstance(protocol, TextProtocol):
            continue
        chosen = protocol.data
        key = (chosen.name, chosen.split, chosen.tokenizer)
        if key not in texts:
            tokenizer = load_tokenizer(chosen.tokenizer, mirror)
            texts[key] = load_tokens(chosen.name, chosen.split, tokenizer, mirror)
        able, _ = texts[key].with_at_least(protocol.federation.batch_size * chosen.length)
        if protocol.trials * protocol.federation.users > len(able):
            short.append(f"{protocol.name}: {len(able)} users")
    assert short == []
