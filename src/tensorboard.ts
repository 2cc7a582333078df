/**
 * TensorBoard's event files: scalars by tag and step. TensorFlow's own writer for Node is a native package that is downloaded when it is
 * installed, and no other package writes these files, so the two layers are put together here from libraries: protobuf's wire format and
 * CRC32C. Reads nothing, and knows no training.
 *
 *   record:  uint64 length, masked crc of these 8 bytes, event, masked crc of the event      (TensorFlow, core/lib/io/record_writer)
 *   Event:   wall_time = 1 double, step = 2 int64, file_version = 3 string, summary = 5      (core/util/event.proto)
 *   Summary: value = 1, each { tag = 1 string, simple_value = 2 float }                      (core/framework/summary.proto)
 */
import { Crc32c } from '@aws-crypto/crc32c'
import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire'

export interface Scalars {
  step: number
  /** Seconds since 1970. */
  wallTime: number
  values: Readonly<Record<string, number>>
}

/** What a file begins with. `wallTime` in seconds since 1970. */
export function fileHeader(wallTime: number): Uint8Array {
  return record(beginEvent(wallTime).tag(3, WireType.LengthDelimited).string('brain.Event:2').finish())
}

export function scalarsRecord({ step, wallTime, values }: Scalars): Uint8Array {
  const event = beginEvent(wallTime)
  // as in every proto3 message, 0 is not written
  if (step !== 0) event.tag(2, WireType.Varint).int64(step)
  event.tag(5, WireType.LengthDelimited).fork()
  for (const [tag, value] of Object.entries(values)) {
    event.tag(1, WireType.LengthDelimited).fork().tag(1, WireType.LengthDelimited).string(tag)
    event.tag(2, WireType.Bit32).float(value).join()
  }
  return record(event.join().finish())
}

function beginEvent(wallTime: number): BinaryWriter {
  return new BinaryWriter().tag(1, WireType.Bit64).double(wallTime)
}

function record(event: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(8 + 4 + event.length + 4)
  const view = new DataView(bytes.buffer)
  view.setBigUint64(0, BigInt(event.length), true)
  view.setUint32(8, maskedCrc(bytes.subarray(0, 8)), true)
  bytes.set(event, 12)
  view.setUint32(12 + event.length, maskedCrc(event), true)
  return bytes
}

/** Rotated right by 15 bits and offset, so that data that holds a checksum does not check itself (TensorFlow, core/lib/hash/crc32c.h). */
function maskedCrc(bytes: Uint8Array): number {
  const crc = new Crc32c().update(bytes).digest()
  return (((crc >>> 15) | (crc << 17)) + 0xa282ead8) >>> 0
}
