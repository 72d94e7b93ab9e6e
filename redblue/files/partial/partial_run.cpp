#include "redblue/files/partial/partial_run.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include "redblue/files/atomic_file.hpp"
#include "redblue/files/partial/directory.hpp"
#include "redblue/files/partial/stamp.hpp"
#include "redblue/files/text.hpp"
#include "redblue/language/error.hpp"

namespace redblue::file::partial {

namespace fs = std::filesystem;

namespace {

constexpr index_t kMostBlocks = 1 << 16;  ///< of a file

bool exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }
std::string parent_of(const std::string& path) {
  const fs::path parent = fs::path(path).parent_path();
  return parent.empty() ? "." : parent.string();
}

/// Throws IoError where no file can be made there, or none that a rename from the directory of `first` reaches.
void require_target(const std::string& output, const std::string& first) {
  {
    const AtomicFile tried(output);
  }
  struct stat here{}, there{};
  if (stat(parent_of(first).c_str(), &here) != 0) throw_errno("inspect", parent_of(first), errno);
  if (stat(parent_of(output).c_str(), &there) != 0) throw_errno("inspect", parent_of(output), errno);
  if (here.st_dev != there.st_dev)
    throw IoError(fmt::format("'{}' is on another file system than '{}', beside which it is made: name outputs on one "
                              "file system",
                              output, first),
                  output, -1, EXDEV);
}

/// A value for a message: long lists are cut.
std::string shown(const std::string& value) {
  constexpr std::size_t kMost = 400, kFirst = 80;
  if (value.size() <= kMost) return value;
  return fmt::format("{}... ({} characters, checksum {:016x})", value.substr(0, kFirst), value.size(),
                     checksum(std::as_bytes(std::span(value))));
}

/// How facts differ from what they were.
std::vector<std::string> differences(const std::vector<Fact>& facts, const std::vector<Fact>& were) {
  std::vector<std::string> list;
  for (const auto& [name, value] : facts)
    if (const auto was = std::ranges::find(were, name, &Fact::first); was == were.end())
      list.push_back(fmt::format("{} was not given and is {}", name, shown(value)));
    else if (was->second != value)
      list.push_back(fmt::format("{} was {} and is {}", name, shown(was->second), shown(value)));
  for (const auto& [name, value] : were)
    if (std::ranges::find(facts, name, &Fact::first) == facts.end())
      list.push_back(fmt::format("{} was {} and is not given", name, shown(value)));
  return list;
}

}  // namespace

std::string directory_of(const std::string& output) { return output + ".redblue-partial"; }

PartialRun::PartialRun(Options options)
    : options_(std::move(options)), directory_(directory_of(options_.outputs.at(0))) {
  for (const std::string& output : options_.outputs) require_target(output, options_.outputs[0]);
  for (const Input& input : options_.inputs)
    if (!stamps_.contains(input.path)) stamps_.emplace(input.path, stamp_of(input.path));
  if (mkdir(directory_.c_str(), 0777) != 0) {
    if (errno != EEXIST) throw_errno("make the directory", directory_, errno);
    require_own(directory_);
  }
  lock_ = std::make_unique<Descriptor>(path_of(std::string(kLock)));
  if (!lock_->lock()) throw InvalidProblem(fmt::format("another process is at work in '{}': wait for it", directory_));
  std::vector<Fact> facts = options_.facts;
  for (std::size_t i = 0; i < options_.outputs.size(); ++i)
    facts.emplace_back(name_of_output(i), fs::absolute(options_.outputs[i]).string());
  for (const Input& input : options_.inputs)
    facts.emplace_back("input " + input.name, fmt::format("'{}', {}{}{}", input.path, input.part,
                                                          input.part.empty() ? "" : "; ", stamps_.at(input.path)));

  std::optional<State> left = read_state(directory_);
  if (left && !options_.resume)
    throw InvalidProblem(
        fmt::format("'{}' holds a run that was not finished: resume it (--resume), or remove the "
                    "directory",
                    directory_));
  resumed_ = left.has_value();
  if (left) {
    state_ = std::move(*left);
    require_same(facts, state_.facts);
  } else {
    state_.facts = std::move(facts);
    state_.block_bytes = options_.block_bytes;
  }
  log_ = std::make_unique<UndoLog>(path_of(std::string(kUndoLog)));
  if (!resumed_) log_->clear();
}

PartialRun::~PartialRun() {
  if (!begun_ && !resumed_) remove_own(directory_);
}

void PartialRun::require_same(const std::vector<Fact>& facts, const std::vector<Fact>& were) const {
  if (const std::vector<std::string> others = differences(facts, were); !others.empty())
    throw InvalidProblem(
        fmt::format("the run in '{}' cannot be resumed, for this is another one: {}. Ask for the same "
                    "run, or remove the directory",
                    directory_, fmt::join(others, "; ")));
}

void PartialRun::require(const std::vector<Fact>& facts) {
  if (resumed_)
    require_same(facts, state_.facts_of_plan);
  else
    state_.facts_of_plan = facts;
}

void PartialRun::require_same_inputs() const {
  for (const auto& [path, was] : stamps_)
    if (const std::string now = stamp_of(path); now != was)
      throw IoError(
          fmt::format("input '{}' has changed while the run read it: it was {} and is {} now. What was computed is of "
                      "no use: remove '{}' and run again",
                      path, was, now, directory_),
          path);
}

std::shared_ptr<const io::OpenFile> PartialRun::output(std::size_t i, index_t bytes, std::string_view header) {
  auto file = named(name_of_output(i), bytes);
  if (!resumed_) write_at(file->cached_descriptor(), file->path(), 0, std::as_bytes(std::span(header)));
  given(*file, 0, std::ssize(header));
  return file;
}
std::shared_ptr<const io::OpenFile> PartialRun::workspace(index_t bytes) {
  return named(std::string(kWorkspace), bytes);
}

std::string PartialRun::path_now(const std::string& name) const {
  std::string path = path_of(name);
  if (complete() && !exists(path))
    for (std::size_t i = 0; i < options_.outputs.size(); ++i)
      if (name == name_of_output(i)) return options_.outputs[i];
  return path;
}

std::shared_ptr<const io::OpenFile> PartialRun::named(const std::string& name, index_t bytes) {
  const std::string path = path_now(name);
  if (resumed_) {
    const State::File* was = state_.file(name);
    std::error_code error;
    const std::uintmax_t size = fs::file_size(path, error);
    if (was == nullptr || was->bytes != bytes || error || std::cmp_not_equal(size, bytes))
      throw IoError(
          fmt::format("'{}' should have {} bytes and {}: it was changed since the run was stopped; remove '{}' "
                      "and run again",
                      path, bytes, error ? std::string("is not there") : fmt::format("has {}", size), directory_),
          path);
  } else if (unlink(path.c_str()) != 0 && errno != ENOENT) {
    throw_errno("replace", path, errno);
  }
  auto file = std::make_shared<const io::OpenFile>(complete() ? io::OpenFile(path, options_.cache)
                                                              : io::OpenFile::in_place(path, bytes, options_.cache));
  // The state of a large file stays small.
  const index_t block = bytes <= kMostBlocks * state_.block_bytes
                            ? state_.block_bytes
                            : ceil_div(ceil_div(bytes, kMostBlocks), io::kPage) * io::kPage;
  files_.push_back({file, name, Blocks(bytes, block)});
  return file;
}

void PartialRun::given(const io::OpenFile& file, index_t offset, index_t bytes) {
  if (resumed_) return;
  for (File& f : files_)
    if (f.file.get() == &file) f.blocks.write(offset, bytes, [](index_t) {});
}

void PartialRun::begin() {
  begun_ = true;
  if (resumed_) return restore();
  make_names_durable(parent_of(directory_));
  checkpoint({});
}

std::span<const std::byte> PartialRun::read(const File& f, index_t block) {
  const index_t offset = f.blocks.offset(block), bytes = f.blocks.bytes(block);
  buffer_.resize(static_cast<std::size_t>(bytes));
  const int fd = f.file->cached_descriptor();
  if (read_at(fd, f.file->path(), offset, buffer_) != bytes)
    throw IoError(fmt::format("'{}' ends before byte {}: something has truncated it; remove '{}' and run again",
                              f.file->path(), offset + bytes, directory_),
                  f.file->path(), offset);
  if (f.file->direct()) give_back_pages(fd, offset, bytes);
  return buffer_;
}

void PartialRun::restore() {
  if (!std::ranges::equal(files_, state_.files, {}, &File::name, &State::File::name))
    throw std::logic_error("a run is resumed with other files");
  log_->roll_back(state_.checkpoint, [&](index_t i, index_t offset, std::span<const std::byte> bytes) {
    const io::OpenFile& file = *std::next(files_.begin(), i)->file;
    write_at(file.cached_descriptor(), file.path(), offset, bytes);
  });
  auto was = state_.files.begin();
  for (File& f : files_) {
    make_durable(f.file->cached_descriptor(), f.file->path());
    for (const auto& [block, sum] : (was++)->blocks) {
      if (checksum(read(f, block)) != sum)
        throw IoError(
            fmt::format("bytes {} to {} of '{}' are not what the run had written: something has changed them; "
                        "remove '{}' and run again",
                        f.blocks.offset(block), f.blocks.offset(block) + f.blocks.bytes(block), f.file->path(),
                        directory_),
            f.file->path(), f.blocks.offset(block));
      f.blocks.restore(block, sum);
    }
  }
  log_->clear();
}

void PartialRun::before_write(const io::OpenFile& file, index_t offset, index_t bytes) {
  index_t number = 0;
  for (File& f : files_) {
    if (f.file.get() == &file) {
      const index_t kept = kept_bytes_;
      f.blocks.write(offset, bytes, [&](index_t block) {
        log_->keep(state_.checkpoint, number, f.blocks.offset(block), read(f, block));
        kept_bytes_ += f.blocks.bytes(block);
      });
      if (kept_bytes_ > kept) log_->make_durable();
      return;
    }
    ++number;
  }
  throw std::logic_error("a run that can be resumed writes to a file that is not of its directory");
}

void PartialRun::checkpoint(Position position, std::span<const std::byte> fast) {
  require_same_inputs();
  save(position, fast, false);
  log_->clear();
}

void PartialRun::restore_fast(std::span<std::byte> fast) const {
  const std::string path = path_of(State::fast_name(state_.checkpoint));
  if (std::ssize(fast) != state_.fast_bytes) throw std::logic_error("a run is resumed with another fast memory");
  if (fast.empty()) return;
  const Descriptor file(path);
  if (read_at(file.number(), path, 0, fast) != state_.fast_bytes || checksum(fast) != state_.fast_checksum)
    throw IoError(fmt::format("'{}' does not hold what fast memory was: something has changed it; remove '{}' and run "
                              "again",
                              path, directory_),
                  path);
  give_back_pages(file.number(), 0, state_.fast_bytes);
}

void PartialRun::save(Position position, std::span<const std::byte> fast, bool complete) {
  state_.files.clear();
  for (File& f : files_) {
    if (!complete) f.blocks.checkpoint([&](index_t block) { return checksum(read(f, block)); });
    make_durable(f.file->cached_descriptor(), f.file->path());
    State::File& saved = state_.files.emplace_back(f.name, f.file->size());
    for (index_t b = 0; b < f.blocks.count() && !complete; ++b)  // nobody goes on from a complete run
      if (f.blocks.written(b) == Blocks::Written::before) saved.blocks.emplace_back(b, f.blocks.checksum_of(b));
  }
  state_.position = position;
  state_.complete = complete;
  ++state_.checkpoint;
  state_.fast_bytes = std::ssize(fast);
  state_.fast_checksum = checksum(fast);
  if (!fast.empty()) {
    const Descriptor file(path_of(State::fast_name(state_.checkpoint)));
    write_durably(file.number(), file.path(), fast);
    fast_bytes_ += std::ssize(fast);
  }
  ++checkpoints_;
  write_state(state_, directory_);
}

void PartialRun::finish() {
  if (!state_.complete) {
    require_same_inputs();
    save(state_.position, {}, true);
  }
  // As AtomicFile::commit_together does it: no new file stands beside an old one. Outputs that are not there any more
  // got their names before the process was killed.
  const std::size_t n = options_.outputs.size();
  for (std::size_t i = 1; i < n; ++i)
    if (exists(path_of(name_of_output(i))) && unlink(options_.outputs[i].c_str()) != 0 && errno != ENOENT)
      throw_errno("replace", options_.outputs[i], errno);
  for (std::size_t i = 0; i < n; ++i)
    if (const std::string made = path_of(name_of_output(i)); exists(made))
      if (std::rename(made.c_str(), options_.outputs[i].c_str()) != 0)
        throw_errno("rename the finished file to", options_.outputs[i], errno);
  for (const std::string& output : options_.outputs) make_names_durable(parent_of(output));
  // Without progress.json the directory is no run that could be resumed.
  if (unlink(path_of(std::string(kProgress)).c_str()) != 0 && errno != ENOENT)
    throw_errno("remove", path_of(std::string(kProgress)), errno);
  if (const int error = remove_own(directory_); error != 0) throw_errno("remove", directory_, error);
}

}  // namespace redblue::file::partial
