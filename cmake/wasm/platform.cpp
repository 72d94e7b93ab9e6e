#include <fmt/format.h>
#include <unistd.h>

#include "commands.hpp"
#include "npz.hpp"
#include "options.hpp"
#include "progress.hpp"
#include "redblue/planner/fastest.hpp"
#include "redblue/files/mapped_file.hpp"
#include "redblue/files/npy.hpp"

/// What the command line asks of a machine, in a module of WebAssembly: it has one thread, no files, and does not know
/// the machine that it runs on.

/// Its memory: 2^16 pages of 2^16 bytes are the most that a module can have.
extern "C" long sysconf(int) { return 1 << 16; }

namespace redblue {

namespace {

[[noreturn]] void no_files(const std::string& path) {
  throw IoError(fmt::format("{}: the planner of a web page reads no files", path), path);
}

}  // namespace

file::MappedFile::MappedFile(std::string path) : path_(std::move(path)) { no_files(path_); }
file::MappedFile::~MappedFile() = default;
file::Tensor file::read_npy(const std::string& path) { no_files(path); }

plan::Cap memory_cap(Words bytes, const Tensors&, const RunOptions&) {
  throw Unsupported(
      fmt::format("--max-workspace of {} bytes: the planner of a web page does not know what runs take", bytes.str()));
}

namespace cli {

void add_commands(Program& program) {
  add_plan(program);
  add_explain(program);
}

class Heartbeat::Watch {};
Heartbeat::Heartbeat(std::string) {}
Heartbeat::~Heartbeat() = default;

SparseMatrix read_sparse_npz(const std::string& path) { no_files(path); }

std::string assumed_memory() {
  throw InvalidProblem("the planner of a web page does not know its machine: give --M or --memory");
}

plan::Plan ObjectiveOptions::fastest(const Problem&, const plan::Options&, TimeOptions) const {
  throw Unsupported("--objective time: the planner of a web page does not know its machine; give --objective words");
}

}  // namespace cli

}  // namespace redblue
