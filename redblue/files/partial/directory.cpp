#include "redblue/files/partial/directory.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <filesystem>
#include <vector>

#include "redblue/files/partial/state.hpp"
#include "redblue/files/text.hpp"
#include "redblue/language/error.hpp"

namespace redblue::file::partial {

namespace {

constexpr std::string_view kOutput = "output-";

bool is_own(std::string_view name) {
  static const std::array<std::string, 7> names{
      std::string(kLock),         std::string(kUndoLog), std::string(kWorkspace), std::string(kProgress),
      std::string(kNextProgress), State::fast_name(0),   State::fast_name(1)};
  if (std::ranges::find(names, name) != names.end()) return true;
  if (!name.starts_with(kOutput) || name.size() == kOutput.size()) return false;
  return std::ranges::all_of(name.substr(kOutput.size()), [](unsigned char c) { return std::isdigit(c) != 0; });
}

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error))
    names.push_back(entry->path().filename().string());
  if (error) throw_errno("list", directory, error.value());
  std::ranges::sort(names);
  return names;
}

}  // namespace

std::string name_of_output(std::size_t i) { return fmt::format("{}{}", kOutput, i + 1); }

void require_own(const std::string& directory) {
  struct stat status{};
  if (lstat(directory.c_str(), &status) != 0) throw_errno("inspect", directory, errno);
  if (!S_ISDIR(status.st_mode))
    throw InvalidProblem(
        fmt::format("'{}' is no directory, and a run keeps in a directory of that name what it has written so far: "
                    "rename it, or name another output",
                    directory));
  const std::vector<std::string> names = names_in(directory);
  if (names.empty() || std::ranges::find(names, kProgress) != names.end()) return;
  // A run takes its lock before it makes anything else, and removes it last.
  const auto other = std::ranges::find_if_not(names, is_own);
  const bool locked = std::ranges::find(names, kLock) != names.end();
  if (locked && other == names.end()) return;
  throw InvalidProblem(
      fmt::format("'{}' holds '{}' and no state of a run, so it is not redblue's, and a run keeps in a directory of "
                  "that name what it has written so far: rename it, or name another output",
                  directory, other == names.end() ? names.front() : *other));
}

int remove_own(const std::string& directory) {
  const auto remove = [&](std::string_view name) {
    return unlink(fmt::format("{}/{}", directory, name).c_str()) == 0 || errno == ENOENT ? 0 : errno;
  };
  try {
    for (const std::string& name : names_in(directory))
      if (is_own(name) && name != kLock)
        if (const int error = remove(name); error != 0) return error;
  } catch (const IoError& e) {
    return e.errno_value == ENOENT ? 0 : e.errno_value;
  }
  if (const int error = remove(kLock); error != 0) return error;
  return rmdir(directory.c_str()) == 0 || errno == ENOTEMPTY || errno == EEXIST || errno == ENOENT ? 0 : errno;
}

}  // namespace redblue::file::partial
