import torch

from tensor_llm.layers import Angles, RMSNorm
from tests.unit.tensor_llm.builders import make_config


def test_the_norm_brings_the_root_mean_square_to_one():
    x_BTE = torch.randn(2, 3, 32, generator=torch.Generator().manual_seed(0)) * 7
    y_BTE = RMSNorm(32, 1e-6)(x_BTE)
    torch.testing.assert_close(y_BTE.square().mean(-1), torch.ones(2, 3))
    torch.testing.assert_close(
        y_BTE / y_BTE.norm(),
        x_BTE
        / x_BTE.norm(dim=-1, keepdim=True)
        * (y_BTE.norm(dim=-1, keepdim=True) / y_BTE.norm()),
    )


def test_the_norm_computes_in_float32_and_returns_the_type_it_got():
    x_BTE = torch.full((1, 1, 32), 300.0, dtype=torch.float16)
    y_BTE = RMSNorm(32, 1e-5).half()(x_BTE)
    assert y_BTE.dtype == torch.float16
    torch.testing.assert_close(y_BTE, torch.ones_like(y_BTE))


def turned(x_D: torch.Tensor, position: int) -> torch.Tensor:
    angles = Angles(torch.tensor([[position]]), make_config())
    return angles.turn(x_D.view(1, 1, 1, -1)).flatten()


def test_rotary_products_depend_on_the_distance_alone():
    q_D, k_D = torch.randn(2, 8, generator=torch.Generator().manual_seed(1))
    near = turned(q_D, 9) @ turned(k_D, 4)
    far = turned(q_D, 50) @ turned(k_D, 45)
    torch.testing.assert_close(near, far, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(near, turned(q_D, 9) @ turned(k_D, 5), rtol=1e-2)


def test_each_pair_turns_by_its_own_angle_the_first_half_towards_the_second():
    # pair i of 4: elements i and i + 4, by 10000 ** (-i / 4) a position
    for pair in range(4):
        x_D = torch.zeros(8)
        x_D[pair] = 1.0
        angle = torch.tensor(3 * 10_000 ** (-pair / 4))
        wanted_D = torch.zeros(8)
        wanted_D[pair], wanted_D[pair + 4] = angle.cos(), angle.sin()
        torch.testing.assert_close(turned(x_D, 3), wanted_D)


def test_position_zero_turns_nothing_and_turning_keeps_the_length():
    x_D = torch.randn(8, generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(turned(x_D, 0), x_D)
    torch.testing.assert_close(turned(x_D, 33).norm(), x_D.norm())


def test_half_precision_still_tells_high_positions_apart():
    x_D = torch.randn(8, generator=torch.Generator().manual_seed(3)).bfloat16()
    assert not torch.equal(turned(x_D, 4096), turned(x_D, 4097))
    assert turned(x_D, 5).dtype == torch.bfloat16
