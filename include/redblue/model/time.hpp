#pragma once
#include <span>
#include <vector>

#include "redblue/core/types.hpp"
#include "redblue/hardware.hpp"

/// The model of time: what a tile operation, and the traffic of a plan, take on a machine that was measured. Every
/// formula and every constant that is not in the hardware file stands here; docs/time-model.md derives them.
namespace redblue::model {

/// Seconds that a plan is expected to take, by cause.
struct Time {
  double compute_s = 0;   ///< multiply-adds of products, with their tiles of results read and written
  double exp_s = 0;       ///< exponentials
  double pass_s = 0;      ///< elementwise passes over tiles, copies into tiles, and the calls themselves
  double transfer_s = 0;  ///< words across the border of fast memory
  double total_s = 0;     ///< with what overlaps taken off

  double work_s() const { return compute_s + exp_s + pass_s; }
};

/// What the model reads of a hardware file, for one instruction set and one type of words.
struct Rates {
  Isa isa = Isa::portable;
  DType dtype = DType::f32;
  bool multiplies_bf16 = false;  ///< else words of bf16 are widened, and computed with as f32
  double macs = 0;               ///< multiply-adds per second of one core, at most
  int lanes = 1;                 ///< numbers of a result in one vector
  double vectors_per_cycle = 1;
  double exps = 0;  ///< exponentials per second of one core
  // The same of kernels without a body of their own (kernel/bodies.hpp): never more; of multiply-adds kPlainShare.
  double portable_macs = 0;
  double portable_exps = 0;
  double word_bytes = 4;
  std::vector<MemoryLevel> levels;
  double all_cores_bandwidth = 0;

  /// The share of `bytes`, used again and again, that one core no longer finds in a level: none up to kPrivateShare of
  /// a cache of its own or kSharedShare of a shared one, all from twice that on.
  double missing(std::size_t level, double bytes) const;
  /// Seconds to read a byte of so many that are used again and again, where levels before `first` hold none of them.
  double seconds_per_byte(double bytes, std::size_t first = 0) const;
  /// The largest cache that one core has to itself.
  std::size_t private_level() const;
};

/// Of `isa` or, where the file has no peak of this type for it, of the largest one below. bf16 and f16 without products
/// of their own are computed as f32. Throws InvalidProblem if the file has none.
Rates rates_of(const Hardware& hardware, Isa isa, DType dtype);
/// The largest instruction set that the file has.
Isa largest_isa(const Hardware& hardware);

/// The register tile: this many rows of results, this many vectors of columns, as gemm kernels have it.
inline constexpr index_t kRegisterRows = 8, kRegisterVectors = 3;
/// What of a cache holds words that are used again and again: pages lie at random in it, and others use a shared one.
inline constexpr double kPrivateShare = 0.625, kSharedShare = 0.25;
/// What of the peak of the portable instruction set a kernel without a body of its own reaches in its loops.
inline constexpr double kPlainShare = 0.2;
/// One call of a kernel.
inline constexpr double kCallSeconds = 70e-9;
/// The share of the smaller of work and transfer that hides behind the larger: hardware prefetches streams.
inline constexpr double kOverlap = 0.75;

/// Which words of a result lie in vector lanes: those of a row, as a row-major tile wants it, or, inside a fused body,
/// those of a row or a column, whichever is better.
enum class Lanes : bool { rows, better };
/// The share of the peak that the register tile allows for a result of rows x cols: ragged vectors, and too few sums to
/// hide the latency of a multiply-add.
double register_share(const Rates& rates, index_t rows, index_t cols, Lanes lanes = Lanes::better);
/// C += A B with C rows x cols and A rows x depth. C is read and written once, at the level that holds `held_bytes`.
double product_seconds(const Rates& rates, index_t rows, index_t cols, double depth, double held_bytes,
                       Lanes lanes = Lanes::better);
/// Reads or writes so many words of tiles that occupy `held_bytes`.
double pass_seconds(const Rates& rates, double words, double held_bytes);

/// What a plan moves.
struct Traffic {
  double bytes = 0;           ///< in all, across the border of fast memory
  double distinct_bytes = 0;  ///< inputs and outputs: each comes from, or goes to, main memory once
  double instance_bytes = 0;  ///< all that one head keeps in slow memory
  double fast_bytes = 0;      ///< of fast memory that the plan uses
  double held_bytes = 0;      ///< resident tiles, and the most that streams past them in a call
  double touched_bytes = 0;   ///< of tiles, in all calls
};
/// Seconds with so many cores at work.
double transfer_seconds(const Rates& rates, const Traffic& traffic, double cores);

/// The time of independent items of work on so many workers, longest first.
double makespan(std::span<const double> items, index_t copies, int workers);

/// Fills total_s.
Time combined(Time time);

}  // namespace redblue::model
