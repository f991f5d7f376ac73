// A management server of limits on go-control-plane. Its setup is the setup in Envoy Gateway: one
// aggregated stream, snapshots by the id of the node, and mutual TLS if certificates are given.
//
// A line "VERSION FILE" on standard input puts a snapshot in place. FILE is a JSON array of
// RateLimitConfig. Without FILE, the snapshot contains no limits, and go-control-plane uses the
// version "" for it. The requests of clients are printed, one per line.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	limits "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/encoding/protojson"
)

var (
	address = flag.String("address", "127.0.0.1:0", "address to listen on")
	node    = flag.String("node", "envoy-ratelimit", "id of the node whose clients are served")
	certs   = flag.String("certs", "", "folder with tls.crt, tls.key and ca.crt")
)

func main() {
	flag.Parse()
	log.SetFlags(0)
	var options []grpc.ServerOption
	if *certs != "" {
		options = append(options, grpc.Creds(mutualTLS(*certs)))
	}
	snapshots := cache.NewSnapshotCache(false, cache.IDHash{}, nil)
	peer := grpc.NewServer(options...)
	xds := server.NewServer(context.Background(), snapshots, callbacks())
	discovery.RegisterAggregatedDiscoveryServiceServer(peer, xds)
	listener, err := net.Listen("tcp", *address)
	check(err)
	fmt.Println("listening", listener.Addr())
	go func() { check(peer.Serve(listener)) }()

	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		version, file, _ := strings.Cut(lines.Text(), " ")
		resources := map[resource.Type][]types.Resource{}
		if file != "" {
			resources[resource.RateLimitConfigType] = read(file)
		}
		snapshot, err := cache.NewSnapshot(version, resources)
		check(err)
		check(snapshots.SetSnapshot(context.Background(), *node, snapshot))
	}
}

func callbacks() server.Callbacks {
	return server.CallbackFuncs{
		StreamOpenFunc: func(_ context.Context, stream int64, _ string) error {
			fmt.Println("open", stream)
			return nil
		},
		StreamClosedFunc: func(stream int64, _ *core.Node) {
			fmt.Println("closed", stream)
		},
		StreamRequestFunc: func(stream int64, request *discovery.DiscoveryRequest) error {
			fmt.Printf("request %d node=%s version=%q nonce=%q error=%q\n", stream, request.GetNode().GetId(),
				request.GetVersionInfo(), request.GetResponseNonce(), request.GetErrorDetail().GetMessage())
			return nil
		},
		StreamResponseFunc: func(_ context.Context, stream int64, _ *discovery.DiscoveryRequest, response *discovery.DiscoveryResponse) {
			fmt.Printf("response %d version=%q nonce=%q resources=%d\n", stream, response.GetVersionInfo(), response.GetNonce(),
				len(response.GetResources()))
		},
	}
}

func mutualTLS(folder string) credentials.TransportCredentials {
	pair, err := tls.LoadX509KeyPair(folder+"/tls.crt", folder+"/tls.key")
	check(err)
	roots, err := os.ReadFile(folder + "/ca.crt")
	check(err)
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(roots) {
		log.Fatalf("%s/ca.crt has no certificate", folder)
	}
	return credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{pair},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    pool,
		MinVersion:   tls.VersionTLS13,
		NextProtos:   []string{"h2"},
	})
}

func read(file string) []types.Resource {
	text, err := os.ReadFile(file)
	check(err)
	var parts []json.RawMessage
	check(json.Unmarshal(text, &parts))
	resources := make([]types.Resource, len(parts))
	for i, part := range parts {
		config := new(limits.RateLimitConfig)
		check(protojson.Unmarshal(part, config))
		resources[i] = config
	}
	return resources
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
