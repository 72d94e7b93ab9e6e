#pragma once
#include <string>

namespace redblue::cli {

/// Opens /dev/null in the place of standard input, output or error where the caller has closed it: the next file to be
/// opened would take its number, and reports would go into that file. Standard output stays unwritable.
void fill_closed_descriptors();

/// Throws IoError if standard output was closed: before work whose report would be lost.
void require_standard_output();

/// A line on standard error. What becomes of it is not looked at: no work is lost for a note.
void note(const std::string& text);

/// Empty if standard output took all that was printed, else why not.
std::string output_failure();

}  // namespace redblue::cli
