#pragma once
#include <span>
#include <vector>

#include "redblue/hardware/hardware.hpp"
#include "redblue/language/types.hpp"

/// The model of time: the seconds that a tile operation, and the traffic of a plan, take on a measured machine. Every
/// formula and every constant that is not in the hardware file stands here; docs/time-model.md derives them.
namespace redblue::model {

/// The modelled seconds of a plan, by cause.
struct Time {
  double compute_s = 0;   ///< multiply-adds of products; reading and writing their tiles of results
  double exp_s = 0;       ///< exponentials
  double pass_s = 0;      ///< elementwise passes over tiles, copies into tiles, and the calls themselves
  double transfer_s = 0;  ///< words across the border of fast memory
  double total_s = 0;     ///< the sum, less what overlaps

  double work_s() const { return compute_s + exp_s + pass_s; }
};

/// The rates that the model takes from a hardware file, for one instruction set and one type of words.
struct Rates {
  Isa isa = Isa::portable;
  DType dtype = DType::f32;
  bool multiplies_bf16 = false;  ///< else bf16 words are widened to f32
  double macs = 0;               ///< peak of one core, in multiply-adds per second
  int lanes = 1;                 ///< numbers of a result in one vector
  int tile_rows = 1;             ///< vectors of a result that one instruction forms: more for matrix tiles
  double vectors_per_cycle = 1;  ///< instructions
  double exps = 0;               ///< exponentials per second of one core
  /// What macs and vectors_per_cycle are for f32: kernels that multiply no bf16 have these.
  double f32_macs = 0, f32_vectors_per_cycle = 1;
  // Rates of kernels without an implementation of their own (kernels/implementations.hpp), never more than those above;
  // macs times kPlainShare.
  double portable_macs = 0;
  double portable_exps = 0;
  double word_bytes = 4;
  std::vector<MemoryLevel> levels;
  double all_cores_bandwidth = 0;

  /// The share of a working set (bytes that are used again and again) that one core does not find in a level: 0 up to
  /// kPrivateShare of a private cache or kSharedShare of a shared one, 1 from twice that size on.
  double missing(std::size_t level, double bytes) const;
  /// Seconds to read a byte of a working set of `bytes` that levels before `first` do not hold.
  double seconds_per_byte(double bytes, std::size_t first = 0) const;
  /// The largest cache that only one core uses.
  std::size_t private_level() const;
  /// The rates of kernels that multiply no bf16.
  Rates without_bf16() const;
};

/// The rates of `isa` or, if the file has no peak of this type for it, of the largest instruction set below that has
/// one. bf16 and f16 are computed as f32 where there are no such products. Throws InvalidProblem if the file has no
/// peak.
Rates rates_of(const Hardware& hardware, Isa isa, DType dtype);
/// The largest instruction set in the file.
Isa largest_isa(const Hardware& hardware);

/// The register tile: this many rows of results, this many vectors of columns, as gemm kernels have it.
inline constexpr index_t kRegisterRows = 8, kRegisterVectors = 3;
/// The share of a cache that a working set may fill: pages lie at random in it, and other programs use a shared cache.
inline constexpr double kPrivateShare = 0.625, kSharedShare = 0.25;
/// The share of the peak of the portable instruction set that the loops of a kernel without an implementation of its
/// own reach.
inline constexpr double kPlainShare = 0.2;
/// A multiply-add of a column with a column, pair by pair of a pattern, in multiply-adds of such loops: to find a pair
/// takes most of it (measured at 1 and 5 % of the pairs).
inline constexpr double kPairVisit = 20;
/// The share of the peak of matrix tiles that products reach, whose operands are loaded for few tiles of sums.
inline constexpr double kTileShare = 0.35;
/// To round words of a tile to 16 bits into a staging buffer takes this many times as long as the roundings that an
/// implementation does itself (measured in flash_pinned: 8 words a nanosecond).
inline constexpr double kStagedWords = 2;
/// What it takes to make columns of pairs, for matrix tiles, in passes over the words.
inline constexpr double kTurning = 6;
/// The time of one call of a kernel, beside its work.
inline constexpr double kCallSeconds = 70e-9;
/// The time it takes to find the rows that come into a part of a tile under a pattern: a ring also looks for those that
/// go.
inline constexpr double kRefillSeconds = 2.5e-6;
/// The time that a composite formed part by part takes for each product and panel of rows, beside its work.
inline constexpr double kPartSeconds = 2e-6;
/// Where a block has more rows of a bias than this, each further row costs as much time beside its words: when its next
/// words are read, those of all other rows of the block have been read since.
inline constexpr index_t kBiasRows = 256;
inline constexpr double kFarRowSeconds = 60e-9;
/// The time it takes to ask a pattern which queries of a panel see a key.
inline constexpr double kSightSeconds = 7e-9;
/// The smaller of work and transfer hides behind the larger, up to this share, because the hardware prefetches streams.
inline constexpr double kOverlap = 0.75;

/// The bytes per second that one core copies from beyond its private caches: it has few lines under way then.
inline constexpr double kCopyRate = 20e9;

/// Which words of a result lie in vector lanes: for a row-major tile those of a row; inside a fused implementation
/// those of a row or of a column, whichever is better.
enum class Lanes : bool { rows, better };
/// The share of the peak that the register tile allows for a result of rows x cols. It falls with ragged vectors, and
/// with fewer sums than hide the latency of a multiply-add.
double register_share(const Rates& rates, index_t rows, index_t cols, Lanes lanes = Lanes::better);
/// C += A B with C rows x cols and A rows x depth, of which this share is formed. C is read and written once, at the
/// level that holds `held_bytes`.
double product_seconds(const Rates& rates, index_t rows, index_t cols, double depth, double held_bytes,
                       Lanes lanes = Lanes::better, double share = 1);
/// Seconds to read or write `words` words of tiles that occupy `held_bytes`.
double pass_seconds(const Rates& rates, double words, double held_bytes);

/// The bytes that a plan moves and holds.
struct Traffic {
  double bytes = 0;           ///< in all, across the border of fast memory
  double distinct_bytes = 0;  ///< inputs and outputs: each byte comes from, or goes to, main memory once
  double instance_bytes = 0;  ///< everything that one head keeps in slow memory
  double fast_bytes = 0;      ///< fast memory that the plan uses
  double held_bytes = 0;      ///< resident tiles, and the most that streams past them in a call
  double touched_bytes = 0;   ///< bytes of tiles that all calls together read and write
};
/// The seconds of this traffic with `cores` cores at work.
double transfer_seconds(const Rates& rates, const Traffic& traffic, double cores);

/// The least seconds if all of it is copied, word by word, into tiles and out of them.
double least_copy_seconds(const Rates& rates, const Traffic& traffic, double cores);

/// The time that `workers` workers need for `copies` copies of these independent items of work, longest first.
double makespan(std::span<const double> items, index_t copies, int workers);

/// Fills total_s.
Time combined(Time time);

}  // namespace redblue::model
