#pragma once
#include <cstddef>
#include <string>
#include <string_view>

/// The directory of a partial run: which names in it are of redblue, so that no file of anybody else is touched.
namespace redblue::file::partial {

inline constexpr std::string_view kLock = "lock", kUndoLog = "undo.log", kWorkspace = "workspace";
std::string name_of_output(std::size_t i);

/// Throws InvalidProblem where what has this name is not the directory of a partial run: no directory, or one that
/// holds files of somebody else and no state of a run. An empty directory is taken for one.
void require_own(const std::string& directory);

/// Removes the files of the run, and the directory where nothing else is in it. Returns the error of the system, or 0.
int remove_own(const std::string& directory);

}  // namespace redblue::file::partial
