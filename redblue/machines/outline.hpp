#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "redblue/kernels/kernel.hpp"
#include "redblue/language/cost.hpp"
#include "redblue/language/data_machine.hpp"
#include "redblue/language/residence.hpp"
#include "redblue/language/words.hpp"

/// The loop nest of a schedule, found by running it: of the operations that pass, what repeats is folded into a loop.
namespace redblue::machine {

/// A number that grows by `steps` with each round of the loops around it, innermost first: where a block begins.
struct Position {
  index_t first = 0;
  std::vector<index_t> steps{};
  bool regular = true;  ///< false: under a mask it does not always grow like that
  index_t rows = 0;     ///< of the tile that a row lies in, else 0
  bool wraps = false;   ///< it is meant modulo `rows`: the tile is a ring
};

/// A tile, or a part of one, or a block of slow memory.
struct Operand {
  std::string tile;          ///< its name; empty: a block of slow memory
  SlowArray array;           ///< what it holds
  Shape whole;               ///< the tile, as it usually is
  Shape first, usual, last;  ///< what of it is meant the first time, the second, and the last
  Position row, col;         ///< where that begins, in the tile or in the array
};

enum class LineKind : std::uint8_t { loop, alloc, load, refill, store, compute, update, evict };

/// Where the words are that a kernel needs one panel at a time: in fast memory as all others, or, of a nest, in that of
/// the level below.
enum class Scratch : std::uint8_t { resident, below };

/// One line of an outline: an operation, as often as it happens at this place, or a loop over lines.
struct OutlineLine {
  LineKind kind = LineKind::loop;
  std::string kernel{};                                      ///< compute, update
  std::vector<std::pair<std::string, double>> parameters{};  ///< of the kernel: those that are always the same
  /// As in the kernel. load, refill: tile, block; store: block, tile; alloc, evict: tiles.
  std::vector<Operand> operands{};
  Words times = 1;
  Words reads{}, writes{}, macs{};  ///< words moved and multiply-adds, all times together
  Words bytes{};                    ///< that these words take, as WordBytes says
  Words resident{};                 ///< the most that is resident after it, in the unit of the Residence
  bool below = false;               ///< alloc: the level below has its words
  // A loop:
  bool independent = false;      ///< its rounds may go on in any order, each with fast memory of its own
  index_t fewest = 0, most = 0;  ///< rounds each time
  Position rounds{};             ///< the same as a formula
  std::vector<OutlineLine> body{};
  // Hashes of what the line does, without shapes and positions; `loose` also without numbers of rounds.
  std::size_t exact = 0, loose = 0;
};

/// Bytes of a word that is read, and of one that is written, of each array. All 0: bytes are not asked for.
struct WordBytes {
  std::array<index_t, kSlowArrays> read{}, written{};
};

/// Records the outline of what passes, one round of an `each` after another, behind machine::Any.
class Outliner : public MachineFace<Outliner> {
 public:
  /// Which rounds of an `each` are run. few: the first three and the last; those between are taken to be like the
  /// third. unlike: where two rounds in a row do the same on blocks of the same shapes, the last one that does is
  /// looked for by bisection, and those between are taken to do so, too.
  enum class Sample : std::uint8_t { all, few, unlike };

  /// A walk through more operations than kMostOperations throws InvalidProblem.
  Outliner(const Residence& fast, const WordBytes& bytes, Sample sample, Scratch scratch)
      : fast_(fast), bytes_(bytes), sample_(sample), scratch_(scratch), sequences_(1) {}

  index_t open(SlowArray array, Shape s, Layout layout);
  void close(index_t depth, SlowArray array, Shape s);
  void read(const Arg& tile, const Block& b);
  void write(const Block& b, const Arg& tile);
  template <class K>
  void run(const K& k, std::span<const Arg> args) {
    add_run(kernel::erase(k), args);
  }
  template <class K>
  void modify(const K& k, std::span<const Arg> args) {
    add_update(kernel::erase(k), args);
  }
  /// The loops are those of the worst decisions.
  static index_t read_index(Question, const Arg&, index_t worst) { return worst; }
  void each(index_t n, const std::function<void(Outliner&, index_t)>& body);

  static constexpr index_t kMostOperations = 100'000'000;  // half a minute

  const Io& io() const { return io_; }
  /// The lines, once the schedule has ended.
  std::vector<OutlineLine> lines();

 private:
  struct Held {
    std::string name;
    SlowArray array;
    Shape shape;
    Words own, resident;  ///< in fast memory; with those that were there before
    bool fresh;           ///< no line says yet that it is there: it may be a load
  };

  void add_run(const kernel::AnyKernel& k, std::span<const Arg> args);
  void add_update(const kernel::AnyKernel& k, std::span<const Arg> args);
  /// The lines of a round, each counted as often as `weight`.
  std::vector<OutlineLine> round_of(const std::function<void(Outliner&, index_t)>& body, index_t i, Words weight);
  Operand operand_of(const Arg& a) const;
  void add_kernel(LineKind kind, const kernel::AnyKernel& k, std::span<const Arg> args);
  /// Says of fresh tiles that they are there.
  void announce();
  void add(OutlineLine line);
  void add(OutlineLine line, Words resident);

  void add_read(OutlineLine& line, const Block& b);
  void add_write(OutlineLine& line, const Block& b);

  Residence fast_;
  WordBytes bytes_;
  Sample sample_;
  Scratch scratch_;
  std::vector<std::vector<OutlineLine>> sequences_;  ///< of the rounds under way, outermost first
  std::vector<Held> tiles_;
  index_t walked_ = 0;
  Words resident_;
  Words weight_ = 1;  ///< how many rounds the present one stands for
  Io io_;
};

}  // namespace redblue::machine
