# Files of src/kernel/ that are compiled for an instruction set of their own; src/kernel/bodies.cpp chooses at run time.
# They are optimised in every build: unoptimised vector code tests nothing, and inline functions that are not inlined
# could be picked for the rest of the program.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(avx2 -mavx2 -mfma -mf16c -mbmi2)
  set(avx512 ${avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512)
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    list(APPEND avx512 -Wno-maybe-uninitialized)  # false alarms of g++ 12 inside its own avx512fintrin.h
  endif()
  set(avx512_bf16 ${avx512} -mavx512bf16)
  foreach(isa avx2 avx512 avx512_bf16)
    set_source_files_properties(src/kernel/${isa}.cpp PROPERTIES COMPILE_OPTIONS "-O3;${${isa}}")
  endforeach()
endif()
