# cmake -D SOURCE=.. -D HEADER=.. -P Commit.cmake: writes the commit that SOURCE is at, where it is not there already.
cmake_minimum_required(VERSION 3.25)
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=12 --exclude=*
                OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
  set(commit unknown)  # not a git checkout
endif()
file(CONFIGURE OUTPUT ${HEADER} CONTENT "#define REDBLUE_COMMIT \"@commit@\"\n" @ONLY)
