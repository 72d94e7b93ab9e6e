include(CMakePackageConfigHelpers)

if(BUILD_SHARED_LIBS AND TARGET redblue-cli)
  file(RELATIVE_PATH to_lib /prefix/${CMAKE_INSTALL_BINDIR} /prefix/${CMAKE_INSTALL_LIBDIR})
  set_target_properties(redblue-cli PROPERTIES INSTALL_RPATH "$ORIGIN/${to_lib}")
endif()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/redblue)
# The public headers alone: what they take from the rooms is written into them (cmake/PublicHeaders.cmake).
set(public_headers ${PROJECT_BINARY_DIR}/public)
install(CODE "execute_process(COMMAND \"${CMAKE_COMMAND}\" -D SOURCE=${PROJECT_SOURCE_DIR} -D OUT=${public_headers} -D METHODS=${REDBLUE_METHODS} -D MPI=${REDBLUE_MPI}
                                      -P ${PROJECT_SOURCE_DIR}/cmake/PublicHeaders.cmake COMMAND_ERROR_IS_FATAL ANY)")
install(DIRECTORY ${public_headers}/redblue DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES redblue/c_api/redblue.h redblue/c_api/redblue_second.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS redblue redblue_c EXPORT redblueTargets)
if(TARGET redblue-cli)
  install(TARGETS redblue-cli)
endif()

install(EXPORT redblueTargets NAMESPACE redblue:: DESTINATION ${package_dir})
if(REDBLUE_MPI)  # a component of its own: who does not ask for it needs no MPI
  install(TARGETS redblue_mpi EXPORT redblueMpiTargets)
  install(EXPORT redblueMpiTargets NAMESPACE redblue:: DESTINATION ${package_dir})
  install(FILES redblue/c_api/redblue_mpi.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endif()
configure_package_config_file(cmake/redblueConfig.cmake.in redblueConfig.cmake INSTALL_DESTINATION ${package_dir}
                              NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(redblueConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/redblueConfig.cmake ${PROJECT_BINARY_DIR}/redblueConfigVersion.cmake DESTINATION ${package_dir})

# ${pcfiledir} keeps the .pc file right wherever the install tree is moved to.
set(pc_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH pc_to_prefix /prefix/${pc_dir} /prefix)
string(REGEX REPLACE "/$" "" pc_to_prefix ${pc_to_prefix})
set(pc_libs_redblue "-lredblue ${uring}")
set(pc_libs_redblue_c -lredblue_c)
set(pc_libs_redblue_mpi "-lredblue_mpi -lredblue ${uring} -lstdc++ -lm")  # from C, too: mpicc $(pkg-config --cflags --libs redblue_mpi)
foreach(library redblue redblue_c ${redblue_mpi_library})
  set(pc_libs ${pc_libs_${library}})
  configure_file(cmake/redblue.pc.in ${library}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${library}.pc DESTINATION ${pc_dir})
endforeach()
