#pragma once
#include <set>
#include <string>
#include <vector>

#include "files/archive.hpp"
#include "files/tensors.hpp"

/// Tensors of an input file that a command does not read: none is passed over without a word.
namespace redblue::cli {

/// --strict and --ignore.
void add_unused(const Command& command, FileOptions& files);

/// "q=Q" for each of these tensors that the archive lacks and seems to have under another name.
std::vector<std::string> other_names(const Archive& archive, const FileOptions& files,
                                     const std::vector<std::string>& tensors);
/// Throws InvalidProblem, with those names, where there are any.
void require_names_in(const Archive& archive, const FileOptions& files, const std::vector<std::string>& tensors);

/// The names of the tensors that are not used, sorted. Throws InvalidProblem for one whose name says that it changes
/// the result, as a mask does, unless the caller has `given` the option that takes its place ("--mask"); under --strict
/// for any; and where --ignore names what is no such tensor. What --ignore names is not in the list. `run`: is it
/// redblue run, with all its options?
std::vector<std::string> unused_names(const FileOptions& files, const Archive& archive,
                                      const std::set<std::string>& used, const Problem& kind,
                                      const std::set<std::string>& given, bool run);

/// One sentence of them, for standard error.
std::string unused_text(const FileOptions& files, const std::vector<std::string>& names);

}  // namespace redblue::cli
