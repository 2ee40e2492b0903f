// The simulated board in blocks: one call runs many clock cycles, nothing crosses to Python in between.
#include <cstdint>
#include <cstring>
#include <vector>

#include "Vboard.h"
#include "verilated.h"

double sc_time_stamp() { return 0; }

namespace {

struct Board {
  VerilatedContext context;
  Vboard top{&context, ""};
  std::vector<uint8_t> to_device, from_device;
  size_t sent = 0;
  uint64_t cycles = 0;

  void clock() {
    top.clk = 1;
    top.eval();
    top.clk = 0;
    top.eval();
  }

  // One cycle; whether a byte moved.
  bool step() {
    bool offered = sent < to_device.size();
    if (offered || top.rx___05Fvalid) {
      top.rx___05Fvalid = offered;
      if (offered) top.rx___05Fpayload = to_device[sent];
      top.eval();
    }
    bool taken = offered && top.rx___05Fready;
    bool given = top.tx___05Fvalid;
    if (given) from_device.push_back(top.tx___05Fpayload);
    sent += taken;
    clock();
    cycles++;
    return taken || given;
  }
};

}  // namespace

extern "C" {

void *board_new() {
  Board *board = new Board;
  board->top.clk = 0;
  board->top.rst = 1;
  board->top.rx___05Fvalid = 0;
  board->top.tx___05Fready = 1;
  for (int cycle = 0; cycle < 4; cycle++) board->clock();
  board->top.rst = 0;
  board->top.eval();
  return board;
}

void board_free(void *self) {
  Board *board = static_cast<Board *>(self);
  board->top.final();
  delete board;
}

uint64_t board_cycles(void *self) { return static_cast<Board *>(self)->cycles; }

void board_write(void *self, const uint8_t *bytes, uint64_t count) {
  Board *board = static_cast<Board *>(self);
  board->to_device.erase(board->to_device.begin(), board->to_device.begin() + board->sent);
  board->sent = 0;
  board->to_device.insert(board->to_device.end(), bytes, bytes + count);
}

// Runs until `wanted` bytes have come, `limit` cycles have passed, or nothing has moved for `idle` cycles (and,
// with `patient`, no run gone on). Returns the bytes that there are to read.
uint64_t board_run(void *self, uint64_t limit, uint64_t idle, uint64_t wanted, int patient) {
  Board *board = static_cast<Board *>(self);
  uint64_t quiet = 0;
  for (uint64_t cycle = 0; cycle < limit && quiet < idle; cycle++) {
    if (wanted && board->from_device.size() >= wanted) break;
    bool moved = board->step();
    quiet = moved || (patient && board->top.busy) ? 0 : quiet + 1;
  }
  return board->from_device.size();
}

uint64_t board_read(void *self, uint8_t *bytes, uint64_t limit) {
  Board *board = static_cast<Board *>(self);
  uint64_t count = board->from_device.size() < limit ? board->from_device.size() : limit;
  std::memcpy(bytes, board->from_device.data(), count);
  board->from_device.erase(board->from_device.begin(), board->from_device.begin() + count);
  return count;
}
}
