// SPDX-License-Identifier: Apache-2.0

// A server and a client of the Go library that speak ECH (RFC 9849).
//
//	ech serve ADDRESS OUTER FILE     the key's configuration goes to FILE
//	ech ask ADDRESS INNER FILE
package main

import (
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
)

func sized(b []byte) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...)
}

// One ECHConfig: X25519, HKDF-SHA256, AES-128-GCM.
func config(public []byte, outer string) []byte {
	c := append([]byte{7, 0, 0x20}, sized(public)...)
	c = append(c, sized([]byte{0, 1, 0, 1})...)
	c = append(c, 64, byte(len(outer)))
	c = append(c, outer...)
	c = append(c, 0, 0)
	return append([]byte{0xfe, 0x0d}, sized(c)...)
}

func must(err error) {
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
}

func serve(address, outer, file, dir string) {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	must(err)
	one := config(key.PublicKey().Bytes(), outer)
	must(os.WriteFile(file, sized(one), 0o644))
	cert, err := tls.LoadX509KeyPair(dir+"/srv.pem", dir+"/srv.key")
	must(err)
	l, err := tls.Listen("tcp", address, &tls.Config{
		Certificates: []tls.Certificate{cert},
		EncryptedClientHelloKeys: []tls.EncryptedClientHelloKey{{
			Config: one, PrivateKey: key.Bytes()}},
	})
	must(err)
	fmt.Println("ready")
	for {
		c, err := l.Accept()
		must(err)
		go func(c net.Conn) {
			defer c.Close()
			t := c.(*tls.Conn)
			if t.Handshake() != nil {
				return
			}
			s := t.ConnectionState()
			fmt.Fprintf(c, "reached %s ech %v\n", s.ServerName,
				s.ECHAccepted)
		}(c)
	}
}

func ask(address, inner, file string) {
	list, err := os.ReadFile(file)
	must(err)
	c, err := tls.Dial("tcp", address, &tls.Config{
		ServerName: inner, InsecureSkipVerify: true,
		EncryptedClientHelloConfigList: list,
	})
	must(err)
	said, err := io.ReadAll(c)
	fmt.Println(strings.TrimSpace(string(said)))
	must(err)
}

func main() {
	a := os.Args
	if a[1] == "serve" {
		serve(a[2], a[3], a[4], a[5])
	}
	ask(a[2], a[3], a[4])
}
