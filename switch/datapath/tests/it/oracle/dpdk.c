/*
 * What DPDK's own parser (rte_net_get_ptype) and its own Toeplitz hash (rte_softrss) say of frames, by the six types of
 * receive-side scaling without extension headers. Compiled and asked by oracle/dpdk.rs.
 *
 * A question: key (40 bytes), types (2), length (2), frame. The answer: whether it is hashed (4 bytes), the hash (4).
 * Numbers are in the byte order of this machine.
 */
#include <rte_ether.h>
#include <rte_mbuf.h>
#include <rte_net.h>
#include <rte_thash.h>
#include <stdio.h>
#include <stdlib.h>

/* virtio 1.2, section 5.1.6.4.3.1: the types of IPv6 follow those of IPv4. */
enum { IP = 1, TCP = 2, UDP = 4, IPV6 = 3 };

/* The hash of so many words of a tuple, found in both ways that DPDK has. */
static uint32_t hash(union rte_thash_tuple *tuple, uint32_t words, const uint8_t *key)
{
	uint32_t converted[10];
	uint32_t plain = rte_softrss((uint32_t *)tuple, words, key);

	rte_convert_rss_key((const uint32_t *)key, converted, 40);
	if (rte_softrss_be((uint32_t *)tuple, words, (const uint8_t *)converted) != plain)
		abort();
	return plain;
}

static void answer(const uint8_t *key, unsigned types, uint8_t *frame, uint16_t length, uint32_t out[2])
{
	struct rte_mbuf m = { .buf_addr = frame, .data_len = length, .pkt_len = length, .nb_segs = 1 };
	struct rte_net_hdr_lens lengths = { 0 };
	uint32_t kind = rte_net_get_ptype(&m, &lengths, RTE_PTYPE_L2_MASK | RTE_PTYPE_L3_MASK | RTE_PTYPE_L4_MASK);
	const uint8_t *l3 = frame + lengths.l2_len, *l4 = l3 + lengths.l3_len;
	uint32_t transport = kind & RTE_PTYPE_L4_MASK;
	unsigned type = transport == RTE_PTYPE_L4_TCP ? TCP : transport == RTE_PTYPE_L4_UDP ? UDP : 0;
	union rte_thash_tuple tuple;
	uint16_t ports[2];

	out[0] = out[1] = 0;
	if (RTE_ETH_IS_IPV6_HDR(kind))
		types >>= IPV6;
	else if (!RTE_ETH_IS_IPV4_HDR(kind))
		return;
	if (!(types & (type | IP)))
		return;
	type &= types;
	if (type)
		memcpy(ports, l4, sizeof(ports));
	out[0] = 1;
	if (RTE_ETH_IS_IPV6_HDR(kind)) {
		rte_thash_load_v6_addrs((const struct rte_ipv6_hdr *)l3, &tuple);
		tuple.v6.sport = rte_be_to_cpu_16(ports[0]);
		tuple.v6.dport = rte_be_to_cpu_16(ports[1]);
		out[1] = hash(&tuple, type ? RTE_THASH_V6_L4_LEN : RTE_THASH_V6_L3_LEN, key);
	} else {
		const struct rte_ipv4_hdr *ip = (const struct rte_ipv4_hdr *)l3;

		tuple.v4.src_addr = rte_be_to_cpu_32(ip->src_addr);
		tuple.v4.dst_addr = rte_be_to_cpu_32(ip->dst_addr);
		tuple.v4.sport = rte_be_to_cpu_16(ports[0]);
		tuple.v4.dport = rte_be_to_cpu_16(ports[1]);
		out[1] = hash(&tuple, type ? RTE_THASH_V4_L4_LEN : RTE_THASH_V4_L3_LEN, key);
	}
}

int main(void)
{
	static uint8_t frame[65536];
	/* rte_softrss reads the key by words. */
	uint32_t key[10], out[2];
	uint16_t head[2];

	while (fread(key, sizeof(key), 1, stdin) == 1) {
		if (fread(head, sizeof(head), 1, stdin) != 1 || fread(frame, head[1], 1, stdin) != 1)
			return 1;
		answer((const uint8_t *)key, head[0], frame, head[1], out);
		fwrite(out, sizeof(out), 1, stdout);
		fflush(stdout);
	}
	return 0;
}
