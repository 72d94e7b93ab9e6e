# redblue_plan.wasm: the commands plan and explain of the program redblue for web pages, as a WASI command: its words
# come as arguments, its answer goes to standard output. It is made of the program's own sources, less what computes.
file(GLOB core CONFIGURE_DEPENDS src/core/*.cpp)
file(GLOB bound CONFIGURE_DEPENDS src/bound/*.cpp)
file(GLOB schedule CONFIGURE_DEPENDS src/schedule/*.cpp)
file(GLOB plan CONFIGURE_DEPENDS src/plan/*.cpp)
file(GLOB schedules CONFIGURE_DEPENDS src/schedules/*.cpp)
set(kernel kinds registry)
set(machine outline team)
set(api arithmetic arrays certificate engine fewer_tiles outline outline_text tolerance widths)
set(cli archive certificate command_line explain json main options patterns plan plan_formats residence standard_output)
list(TRANSFORM kernel REPLACE "(.+)" "src/kernel/\\1.cpp")
list(TRANSFORM machine REPLACE "(.+)" "src/machine/\\1.cpp")
list(TRANSFORM api REPLACE "(.+)" "src/api/\\1.cpp")
list(TRANSFORM cli REPLACE "(.+)" "cli/\\1.cpp")
set(sources ${schedules} redblue/language/fmt.cpp cmake/wasm/platform.cpp cmake/wasm/exceptions.cpp)
foreach(folder core bound schedule plan kernel machine api cli)  # each compiled as one file
  set_property(SOURCE ${${folder}} PROPERTY UNITY_GROUP ${folder})
  list(APPEND sources ${${folder}})
endforeach()

# Headers without code of other machines, alone: beside them in /usr/include lie those of this machine's C library.
set(headers ${PROJECT_BINARY_DIR}/headers)
file(MAKE_DIRECTORY ${headers})
foreach(header fmt/core.h nlohmann/json.hpp CLI/CLI.hpp)
  cmake_path(GET header PARENT_PATH folder)
  find_path(${folder}_folder ${header} PATHS /usr/include NO_CMAKE_FIND_ROOT_PATH REQUIRED)
  file(CREATE_LINK ${${folder}_folder}/${folder} ${headers}/${folder} SYMBOLIC)
endforeach()

# clang runs it on what it has linked, where it is there: it takes 43 % off the module.
find_program(WASM_OPT wasm-opt)
if(NOT WASM_OPT)
  message(FATAL_ERROR "wasm-opt is missing: install binaryen (scripts/setup.sh --dev does)")
endif()

add_executable(redblue_plan ${sources})
target_compile_features(redblue_plan PRIVATE cxx_std_20)
set_target_properties(redblue_plan PROPERTIES CXX_EXTENSIONS ON POSITION_INDEPENDENT_CODE OFF
                      UNITY_BUILD ON UNITY_BUILD_MODE GROUP SUFFIX .wasm)
target_include_directories(redblue_plan PRIVATE cmake/wasm/include include src cli)
target_include_directories(redblue_plan SYSTEM PRIVATE ${headers})
target_compile_definitions(redblue_plan PRIVATE REDBLUE_PLANS_ONLY CLI11_HAS_FILESYSTEM=0 JSON_HAS_FILESYSTEM=0
  _WASI_EMULATED_SIGNAL
  "FMT_BEGIN_NAMESPACE=namespace fmt { inline namespace redblue_v9 {" "FMT_END_NAMESPACE=} }")
target_compile_options(redblue_plan PRIVATE -fwasm-exceptions -Wno-shorten-64-to-32 -Wno-gnu-include-next)
target_link_options(redblue_plan PRIVATE -fwasm-exceptions -Wl,--strip-all -Wl,--stack-first -Wl,-z,stack-size=4194304)
target_link_libraries(redblue_plan PRIVATE wasi-emulated-signal c-printscan-long-double)
