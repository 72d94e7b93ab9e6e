#pragma once
#include <optional>
#include <string>

#include "redblue/ranks/count.hpp"
#include "redblue/ranks/kept.hpp"
#include "redblue/ranks/transport.hpp"
#include "redblue/runtime/run.hpp"

/// Carries out the steps of a rank.
namespace redblue::ranks {

struct How {
  /// As RunOptions::compute. lse, and partial results on the network, are f64 where it is f64, else f32.
  DType compute = DType::f32;
  int threads = 0;             ///< of this rank; 0: as many as the work is worth
  ThreadPool* pool = nullptr;  ///< null: default_pool()
  plan::Options plan{};        ///< of the work on this rank: with M or memory for least words, else for least time
  int look_ahead = 2;          ///< messages that may come in before their turn
  std::chrono::milliseconds patience = std::chrono::minutes(10);  ///< how long to wait for one message
  /// Do ranks compare what they were asked for before they begin, and say that they are done? Each time, each sends 256
  /// bytes to rank 0, and gets as many. Without it a rank that fails may leave others without an error.
  bool agree = true;
  /// Do nothing but send and receive? Outputs are then undefined, and Ran::waited is what messages take where no work
  /// hides them.
  bool messages_alone = false;
  /// Where Layout::keeps_heads: a forward pass leaves heads there, and its gradient finds them. (Of run_in_process:
  /// those of the first rank; those of the others follow.)
  Kept* kept = nullptr;
};

struct Ran {
  Crossing crossed;                  ///< words and messages as they were sent and received
  Words bytes_received, bytes_sent;  ///< of these messages
  Words io;                          ///< words between fast and slow memory of this rank, of all its work
  Words held_bytes;                  ///< most at a time of tiles, beside the caller's tensors and `staging_bytes`
  Words staging_bytes;               ///< most at a time of messages on their way
  std::chrono::nanoseconds took{}, waited{};  ///< in all, and for messages
};

/// The share of messages that went on while this rank worked, of what could: 1 where it waited for nothing but what
/// took longer than its work. `alone` ran with How::messages_alone. No value where that is less than a millisecond.
/// Where ranks end their parts at different times they wait for each other, and that is not hidden, either.
std::optional<double> overlap_of(const Ran& ran, const Ran& alone);

/// Runs attention over ranks, on the rank of this transport: all ranks call it with the same problem, layout and types.
/// `tensors` are the rows that this rank has at home (World::queries_of, keys_of), all heads: q [batch, heads, rows, d]
/// and so on, as in redblue/runtime/run.hpp. slopes and sinks are whole, a bias has a row for each query at home and a
/// column for each key of all ranks, or 1 where all share it. Every rank gets all of dsinks, summed over all ranks.
/// lse, and the lse of a gradient, have the type of the arithmetic. Throws on every rank where one of them cannot:
/// InvalidProblem and Unsupported before anything is computed, RankError where a message does not come. Outputs are
/// undefined if it throws.
Ran run(const World& world, Transport& transport, const Tensors& tensors, const How& how = {});

/// In place of run(), where this rank cannot even call it: the other ranks throw an Error with these words.
void refuse(Transport& transport, const std::string& why, std::chrono::milliseconds patience = How{}.patience);

}  // namespace redblue::ranks
