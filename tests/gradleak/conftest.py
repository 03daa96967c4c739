import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, ViTConfig, ViTForImageClassification


@pytest.fixture
def image():
    return torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(3))


@pytest.fixture
def tokens():
    return torch.randint(200, (1, 12), generator=torch.Generator().manual_seed(4))


@pytest.fixture
def timm_vit():
    import timm

    torch.manual_seed(0)
    sizes = {"img_size": 32, "patch_size": 8, "embed_dim": 192, "depth": 2, "num_classes": 5}
    return timm.create_model("vit_tiny_patch16_224", **sizes).eval()


@pytest.fixture
def hugging_face_vit():
    torch.manual_seed(0)
    sizes = {"hidden_size": 192, "num_hidden_layers": 2, "num_attention_heads": 3}
    sizes |= {"intermediate_size": 256, "image_size": 32, "patch_size": 8, "num_labels": 5}
    return ViTForImageClassification(ViTConfig(**sizes)).eval()


@pytest.fixture
def gpt2():
    torch.manual_seed(0)
    sizes = {"n_embd": 96, "n_layer": 2, "n_head": 3, "n_positions": 32, "vocab_size": 200}
    return GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0)).eval()
