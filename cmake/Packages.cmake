# What redblue is built with and does not hold itself: where it is missing, the message says how to get it.
macro(redblue_require found name)
  if(NOT ${found})
    message(FATAL_ERROR "redblue is built with ${name}, which is not there. On Debian run scripts/setup.sh, which installs "
                        "all that building needs; elsewhere install ${name} by hand.")
  endif()
endmacro()

# redblue_find_package(NAME ARGUMENTS...): find_package, required. A macro, for what find_package sets is used.
macro(redblue_find_package name)
  find_package(${name} ${ARGN} QUIET)
  redblue_require(${name}_FOUND ${name})
endmacro()
