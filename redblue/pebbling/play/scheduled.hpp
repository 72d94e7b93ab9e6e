#pragma once
#include "redblue/pebbling/certificate.hpp"
#include "redblue/pebbling/graphs/catalog.hpp"
#include "redblue/pebbling/play/player.hpp"
#include "redblue/planner/planner.hpp"

namespace redblue::pebbling {

/// Attention of one head as the families of graphs have it: nq, nk, d, dv and mask of the arguments, and no others.
/// Throws Error for one that is missing, or that is no such number or mask.
Problem problem_for(Operation op, const Arguments& arguments);

/// What a schedule needs beside its footprint to play by these rules: 2 where each new value is placed beside the old
/// one (docs/model.md, strict Hong-Kung play), else what its kernels hold beside their words, none but for a few.
Words words_beside(const Problem& problem, std::string_view schedule, const Rules& rules);

/// Plays the chosen schedule of a plan by these rules with the M of its options; its inputs are numbers from -1 to 1.
/// Throws what play() throws, and Unsupported where the plan has several heads or batches,
/// or more than two million multiply-adds.
Play play(const plan::Plan& plan, const Rules& rules, bool rooms = true);

/// The plan's play. Its problem is one that replayers know where it is plain attention, full or causal.
Certificate certificate_of(const plan::Plan& plan, Play play);

}  // namespace redblue::pebbling
