"""steps/vision/models.py: torchvision's names and arithmetic, and random weights that tell images apart."""

from __future__ import annotations

import numpy as np
import pytest

from tests.builders.scripts import Later
from trimodal.vision.artefact import InputSpec

pytestmark = [pytest.mark.build, pytest.mark.filterwarnings("ignore")]
torch, models, networks = Later("torch"), Later("steps.vision.models"), Later("steps.vision.networks")

# torchvision.models: `num_params` of the published weights (vision_transformer.py, convnext.py, …), the
# number of tensors in their state dicts, and some of their names with shapes.
PUBLISHED = [
    ("resnet50", 25_557_032, 320, {"layer4.2.conv3.weight": (2048, 512, 1, 1), "fc.bias": (1000,)}),
    ("vit_b_16", 86_567_656, 152, {"encoder.layers.encoder_layer_0.mlp.3.weight": (768, 3072)}),
    ("convnext_tiny", 28_589_128, 182, {"features.7.2.block.5.weight": (768, 3072)}),
]


@pytest.mark.parametrize(("name", "parameters", "tensors", "shapes"), PUBLISHED)
def test_parameters_are_torchvisions(name, parameters, tensors, shapes):
    with torch.device("meta"):
        model = models.ARCHITECTURES[name](num_classes=1000)
    state = model.state_dict()
    assert sum(weight.numel() for weight in model.parameters()) == parameters
    assert len(state) == tensors
    assert {key: tuple(state[key].shape) for key in shapes} == shapes


def test_arithmetic_is_torchvisions():
    torch.manual_seed(0)
    theirs = torch.nn.MultiheadAttention(32, 4, batch_first=True)
    torch.nn.init.normal_(theirs.in_proj_bias)
    ours = networks.SelfAttention(32, 4)
    ours.load_state_dict(theirs.state_dict())  # the same names, no more and no fewer
    x = torch.randn(3, 7, 32)
    with torch.inference_mode():
        expected, _ = theirs(x, x, x, need_weights=False)
        torch.testing.assert_close(ours(x), expected)
        norm = networks.LayerNorm2d(5, eps=1e-6)
        picture = torch.randn(2, 5, 3, 4)
        flat = torch.nn.functional.layer_norm(picture.permute(0, 2, 3, 1), (5,), eps=1e-6)
        torch.testing.assert_close(norm(picture), flat.permute(0, 3, 1, 2))
    for name in ("vit-tiny", "convnext-nano"):
        modules = list(models.ARCHITECTURES[name](num_classes=3).modules())
        assert {module.eps for module in modules if isinstance(module, torch.nn.LayerNorm)} == {1e-6}
        assert {module.approximate for module in modules if isinstance(module, torch.nn.GELU)} == {"none"}


def test_positions_follow_the_size_of_the_input():
    spec = InputSpec(height=384, width=384, resize="exact")
    with torch.device("meta"):
        model = models.make("vit_b_16", 1000, spec)
    # num_params of torchvision's ViT_B_16_Weights.IMAGENET1K_SWAG_E2E_V1, which reads 384 pixels.
    assert sum(weight.numel() for weight in model.parameters()) == 86_859_496


@pytest.mark.parametrize("name", ["digits-resnet", "vit-tiny", "convnext-nano"])
def test_random_weights_tell_images_apart_and_are_always_the_same(name):
    spec = InputSpec(height=32, width=32, resize="exact")
    pixels = np.random.default_rng(0).normal(size=(20, 3, 32, 32)).astype(np.float32)
    model = models.random_model(name, spec, pixels, classes=50)
    with torch.inference_mode():
        logits = model(torch.from_numpy(pixels)).numpy()
        again = models.random_model(name, spec, pixels, classes=50)(torch.from_numpy(pixels)).numpy()
    assert np.array_equal(logits, again)
    np.testing.assert_allclose(logits.mean(0), 0, atol=1e-4)
    assert len(set(logits.argmax(1))) > 5
    assert not model.training
