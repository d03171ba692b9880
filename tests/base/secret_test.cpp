// Proofs of a secret: which differ, and what may be one.
#include "base/secret.h"

#include "base/build.h"
#include "base/guard.h"
#include "support/throws.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace trireme {
namespace {

TEST(Secret, IsMadeOfThirtyTwoRandomBytes) {
  std::set<std::string> seen;
  for (int i = 0; i < 100; ++i) {
    const Secret secret = Secret::make();
    EXPECT_EQ(secret.text().size(), 64);
    EXPECT_EQ(secret.text().find_first_not_of("0123456789abcdef"), std::string::npos);
    seen.insert(secret.text());
  }
  EXPECT_EQ(seen.size(), 100);
  EXPECT_NE(fresh_nonce(), fresh_nonce());
}

TEST(Secret, ThatCanBeGuessedIsRefused) {
  const std::string message = test::usage_error([] { Secret("fifteen letters"); });
  EXPECT_NE(message.find("15 characters"), std::string::npos) << message;
  EXPECT_NE(message.find("openssl rand -hex 32"), std::string::npos) << message;
  EXPECT_TRUE(Secret("sixteen letters!"));
  EXPECT_FALSE(Secret());
}

// RFC 4231 gives codes for bytes without lengths before them, so only that it depends on everything is checked here.
TEST(Secret, IsProvedOverTheRoleAndAllThatWasSaid) {
  const Secret secret("sixteen letters!");
  const Digest digest = secret.prove("role", {"one", "two"});
  EXPECT_TRUE(same_digest(digest, secret.prove("role", {"one", "two"})));
  const std::vector<Digest> others{secret.prove("rolE", {"one", "two"}), secret.prove("role", {"onet", "wo"}),
                                   secret.prove("role", {"one", "two", ""}), secret.prove("role", {"onetwo"}),
                                   Secret("sixteen letters?").prove("role", {"one", "two"})};
  for (const Digest& other : others) EXPECT_FALSE(same_digest(digest, other));
}

TEST(Doorman, GivesFewNoticesOfMany) {
  std::vector<std::string> notices;
  Doorman doorman([&](const std::string& text) { notices.push_back(text); });
  for (int i = 0; i < 10'000; ++i) doorman.turn_away("it was odd");
  EXPECT_EQ(doorman.count(), 10'000);
  EXPECT_EQ(notices.front(), "a stranger was turned away (1 so far): it was odd");
  EXPECT_LE(notices.size(), 10);
}

TEST(Build, HasAShortName) {
  EXPECT_EQ(build_name().find("Trireme "), 0);
  EXPECT_LT(build_name().size(), 48);
}

}  // namespace
}  // namespace trireme
