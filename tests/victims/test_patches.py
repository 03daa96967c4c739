import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from benchmark.victims import images_from_patches, to_images, to_patches

sizes = st.integers(1, 4)


@given(sizes, sizes, sizes, sizes)
def test_cutting_and_joining_is_the_identity(batch, channels, side, patch):
    size = side * patch
    images = torch.arange(batch * channels * size**2).float().view(batch, channels, size, size)
    patches = to_patches(images, patch)
    assert patches.shape == (batch, side**2, channels * patch**2)
    assert torch.equal(to_images(patches, patch, size), images)


@given(sizes, sizes, sizes)
def test_flattened_patch_is_read_as_a_convolution_reads_it(channels, side, patch):
    size = side * patch
    images = torch.arange(channels * size**2).double().view(1, channels, size, size)
    kernel = torch.arange(5 * channels * patch**2).double().view(5, channels, patch, patch)
    wanted = functional.conv2d(images, kernel, stride=patch).flatten(2).transpose(1, 2)
    torch.testing.assert_close(to_patches(images, patch) @ kernel.flatten(1).T, wanted)


def test_patches_as_the_network_sees_them_become_pixels(make_victim, draw):
    victim = make_victim(channels=3, depth=1)
    image = torch.rand(1, 3, 28, 28, generator=draw)
    patches = to_patches((image - victim.mean) / victim.std, 7)[0].double()
    images = images_from_patches(patches, victim, 2)
    assert images.dtype == torch.float32
    torch.testing.assert_close(images, image.expand(2, -1, -1, -1))
