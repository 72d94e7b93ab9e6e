#pragma once
#include <list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "redblue/files/io/open_file.hpp"
#include "redblue/files/partial/blocks.hpp"
#include "redblue/files/partial/descriptor.hpp"
#include "redblue/files/partial/state.hpp"
#include "redblue/files/partial/undo_log.hpp"

/// Long runs that lose nothing. What a run writes lies in a directory beside its first output, OUT.redblue-partial,
/// with progress.json, which says how far the run is, undo.log, which keeps what the run has written over since, and
/// what fast memory held. The outputs get their names at the end, all of them finished.
///
/// After kill -9 at any time, or a loss of power, the next run puts back what undo.log holds, finds the files as they
/// were at the last checkpoint, checks this by their checksums, and goes on from there.
namespace redblue::file::partial {

/// What a run reads: the file, which must not change before the run has ended, and what it takes of it.
struct Input {
  std::string name;  ///< "q", "--mask"
  std::string path;
  std::string part{};  ///< "f32 [64, 32] at byte 128"; empty: all of it
};

struct Options {
  std::vector<std::string> outputs{};  ///< where they will stand; the directory lies beside the first
  std::vector<Input> inputs{};
  std::vector<Fact> facts{};  ///< what else must be the same for the run to be resumed
  bool resume = false;        ///< goes on with a run that was stopped, if there is one; a leftover is refused otherwise
  index_t block_bytes = 1 << 20;  ///< of blocks that are kept and checked; more where a file has over 65536
  io::PageCache cache = io::PageCache::bypassed_if_possible;
};

/// The directory of a run that is not finished. One thread uses it.
class PartialRun {
 public:
  /// Takes the directory, and its lock. Throws IoError where it cannot, InvalidProblem where something else has that
  /// name, where the directory holds a run and `resume` is false, and where that run differs in a fact, which it names.
  explicit PartialRun(Options options);
  PartialRun(const PartialRun&) = delete;
  PartialRun& operator=(const PartialRun&) = delete;
  /// Without finish() the directory stays, so that the run can be resumed; without begin() there is nothing to resume.
  ~PartialRun();

  const std::string& directory() const { return directory_; }
  bool resumed() const { return resumed_; }
  /// Was a run resumed that only has to finish()?
  bool complete() const { return state_.complete; }
  /// Where a resumed run goes on.
  Position position() const { return state_.position; }

  /// The facts of the plan, once, before begin(). Throws InvalidProblem where the resumed run had others.
  void require(const std::vector<Fact>& facts);

  /// A file of the directory, of this size, by its place among the outputs. In a new run it begins with this header,
  /// and all else is zero. The file of a complete run is for reading, and may have its name already.
  std::shared_ptr<const io::OpenFile> output(std::size_t i, index_t bytes, std::string_view header = {});
  /// A file for what the run needs beside outputs, which a new run finds full of zeros.
  std::shared_ptr<const io::OpenFile> workspace(index_t bytes);
  /// These bytes of an output hold something at the start, as a sum that is added to: a new run has just written them,
  /// a resumed one finds them there.
  void given(const io::OpenFile& file, index_t offset, index_t bytes);
  /// All files are named. A new run is at its first checkpoint; of a resumed one, the files are as they were at its
  /// last. Throws IoError where they are not.
  void begin();

  /// These bytes will be written over.
  void before_write(const io::OpenFile& file, index_t offset, index_t bytes);
  /// A resumed run may go on from here: all that was written before is in the files, and fast memory holds these bytes.
  /// Throws IoError where an input has changed.
  void checkpoint(Position position, std::span<const std::byte> fast = {});
  /// Puts into fast memory what it held at the last checkpoint. Throws IoError where that is not in its file any more.
  void restore_fast(std::span<std::byte> fast) const;
  /// All is written: the outputs get their names, and the directory goes, unless it holds what somebody else put there.
  /// Throws IoError.
  void finish();

  index_t checkpoints() const { return checkpoints_; }  ///< so far, of this process
  index_t kept_bytes() const { return kept_bytes_; }    ///< in the undo log, so far, of this process
  index_t fast_bytes() const { return fast_bytes_; }    ///< of fast memory, written at checkpoints of this process

 private:
  struct File {
    std::shared_ptr<const io::OpenFile> file;
    std::string name;
    Blocks blocks;
  };

  std::shared_ptr<const io::OpenFile> named(const std::string& name, index_t bytes);
  std::string path_of(const std::string& name) const { return directory_ + "/" + name; }
  /// Where this file lies: outputs of a complete run may have their names already.
  std::string path_now(const std::string& name) const;
  void require_same(const std::vector<Fact>& facts, const std::vector<Fact>& were) const;
  void require_same_inputs() const;
  void restore();
  void save(Position position, std::span<const std::byte> fast, bool complete);
  std::span<const std::byte> read(const File& file, index_t block);

  const Options options_;
  const std::string directory_;
  std::map<std::string, std::string> stamps_;  ///< of input files, by their paths
  std::unique_ptr<Descriptor> lock_;
  std::unique_ptr<UndoLog> log_;
  bool resumed_ = false, begun_ = false;
  State state_;
  std::list<File> files_;
  std::vector<std::byte> buffer_;  ///< of a block
  index_t checkpoints_ = 0, kept_bytes_ = 0, fast_bytes_ = 0;
};

/// OUT.redblue-partial, without a directory that is not there.
std::string directory_of(const std::string& output);

}  // namespace redblue::file::partial
