"""Tests of bimetal.rollout.sampling."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bimetal.core.streams import uniforms
from bimetal.rollout.backend import Request, Sampling
from bimetal.rollout.sampling import draw, inverse_cdf, rules_of

CPU = torch.device("cpu")


def rules(*settings, key=1, vocabulary=4):
    requests = [Request(id=str(n), context_ids=(0,), key=key + n, sampling=s) for n, s in enumerate(settings)]
    return rules_of(requests, vocabulary=vocabulary, device=CPU)


def logits_of(*probabilities):
    return torch.tensor([probabilities]).log()


def test_noise_picks_the_token_whose_interval_it_falls_into():
    # Cumulative: 0.25, 0.75, 1. So [0, 0.25) is token 0, [0.25, 0.75) token 1, [0.75, 1) token 2.
    p = torch.tensor([[0.25, 0.5, 0.25]], dtype=torch.float64)
    for noise, token in ((0.0, 0), (0.2499, 0), (0.25, 1), (0.7499, 1), (0.75, 2), (0.9999, 2)):
        assert inverse_cdf(p, torch.tensor([noise], dtype=torch.float64)).tolist() == [token]


def test_tokens_of_probability_zero_are_never_drawn_at_either_end():
    p = torch.tensor([[0.0, 1.0, 0.0]], dtype=torch.float64)
    for noise in (0.0, 0.5, np.nextafter(1.0, 0.0)):
        assert inverse_cdf(p, torch.tensor([noise], dtype=torch.float64)).tolist() == [1]


@given(
    weights=st.lists(st.floats(0.0, 1.0), min_size=1, max_size=20).filter(lambda w: max(w) > 1e-6),
    noise=st.floats(0.0, 1.0, exclude_max=True),
)
def test_a_drawn_token_always_has_probability(weights, noise):
    p = torch.tensor([weights], dtype=torch.float64)
    (token,) = inverse_cdf(p, torch.tensor([noise], dtype=torch.float64)).tolist()
    assert weights[token] > 0.0


def test_logprobs_are_temperature_scaled_and_untruncated():
    # p ~ (1, 2, 4, 1) / 8; at temperature 0.5 it is squared: (1, 4, 16, 1) / 22.
    logits = logits_of(1.0, 2.0, 4.0, 1.0)
    token, logprob = draw(logits, rules(Sampling(temperature=0.5, top_k=1)), step=0)
    assert token.tolist() == [2]
    assert logprob.item() == pytest.approx(math.log(16 / 22), rel=1e-6)


def test_greedy_takes_the_likeliest_token_and_reports_temperature_one():
    token, logprob = draw(logits_of(1.0, 2.0, 4.0, 1.0), rules(Sampling(temperature=0.0)), step=0)
    assert token.tolist() == [2]
    assert logprob.item() == pytest.approx(math.log(4 / 8), rel=1e-6)


def test_token_number_n_uses_uniform_number_n_of_its_own_stream():
    even = torch.zeros(2, 1000)
    r = rules(Sampling(max_tokens=5), Sampling(max_tokens=3), key=40, vocabulary=1000)
    for step in range(3):
        tokens, _ = draw(even, r, step=step)
        # Over 1000 equally likely tokens the noise u falls into the interval of token floor(1000 u).
        assert tokens.tolist() == [math.floor(1000 * uniforms(40 + row, 5)[step]) for row in (0, 1)]


def test_a_rows_token_is_the_same_alone_and_in_company():
    logits = torch.randn(6, 50, generator=torch.Generator().manual_seed(0))
    settings = [Sampling(temperature=t) for t in (1.0, 0.7, 0.0, 2.0, 1.0, 0.3)]
    together = rules(*settings, key=9, vocabulary=50)
    tokens, logprobs = draw(logits, together, step=2)
    for row in range(6):
        alone, logprob = draw(logits[row : row + 1], together.at(torch.tensor([row])), step=2)
        assert (alone.item(), logprob.item()) == (tokens[row].item(), logprobs[row].item())


def test_draws_follow_the_distribution():
    count = 20_000
    p = torch.tensor([0.1, 0.2, 0.3, 0.4])
    noise = torch.from_numpy(uniforms(3, count))
    tokens = inverse_cdf(p.double().expand(count, 4).contiguous(), noise)
    observed = torch.bincount(tokens, minlength=4) / count
    # Four standard errors of a share of one half among 20000: 4 * 0.5 / sqrt(20000) = 0.0141.
    assert (observed - p).abs().max().item() < 0.0141


def test_top_k_keeps_the_k_likeliest_and_other_rows_are_untouched():
    logits = logits_of(1.0, 2.0, 4.0, 3.0).repeat(2, 1)
    r = rules(Sampling(top_k=2, max_tokens=200), Sampling(max_tokens=200))
    seen = [set(), set()]
    for step in range(200):
        tokens, _ = draw(logits, r, step=step)
        for row in (0, 1):
            seen[row].add(tokens[row].item())
    assert seen == [{2, 3}, {0, 1, 2, 3}]


def test_top_p_keeps_the_smallest_set_that_reaches_it():
    # Sorted 0.4, 0.3, 0.2, 0.1: 0.7 is reached by the first two, 0.71 needs the third.
    logits = logits_of(0.1, 0.2, 0.4, 0.3)
    for top_p, kept in ((0.69, {2, 3}), (0.71, {1, 2, 3}), (0.01, {2})):
        r = rules(Sampling(top_p=top_p, max_tokens=300))
        assert {draw(logits, r, step=step)[0].item() for step in range(300)} == kept
