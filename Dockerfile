# The two commands of the README on a bare Debian, then the program:
#
#   docker build -t redblue .
#   docker run --rm redblue plan --n 1024 --d 64 --M 4096
FROM debian:12-slim
WORKDIR /redblue
COPY . .
RUN scripts/demo.sh
RUN scripts/test.sh
ENTRYPOINT ["build/release/redblue"]
