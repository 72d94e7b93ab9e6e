#pragma once
#include "redblue/problem/approximation.hpp"

/// The kinds of approximations that redblue has.
namespace redblue::methods {

/// MethodKind::ask of each (methods/cases.cpp).
using Ask = void(Sizes& sizes, const MethodKind::Draw& draw, bool by_rows, const MethodKind::Solves& solves);
Ask ask_for_polynomial, ask_for_linear_attention, ask_for_performer, ask_for_linformer, ask_for_nystroemformer,
    ask_for_smyrf, ask_for_hyper_attention, ask_for_reformer, ask_for_coreset, ask_for_uniform_sample;

inline constexpr MethodKind kPolynomial{"polynomial", "a polynomial in place of e^z (approximation)",
                                        ask_for_polynomial},
    kLinearAttention{"linear attention", "linear attention (method)", ask_for_linear_attention},
    kPerformer{"Performer", "Performer (method)", ask_for_performer},
    kLinformer{"Linformer", "Linformer (method)", ask_for_linformer},
    kNystroemformer{"Nystroemformer", "Nystroemformer (method)", ask_for_nystroemformer},
    kSmyrf{"SMYRF", "SMYRF (method)", ask_for_smyrf},
    kHyperAttention{"HyperAttention", "HyperAttention (method)", ask_for_hyper_attention},
    kReformer{"Reformer", "Reformer (method)", ask_for_reformer},
    kCoreset{"coreset", "coreset (method)", ask_for_coreset},
    kUniformSample{"uniform sample", "uniform sample (method)", ask_for_uniform_sample};

}  // namespace redblue::methods
